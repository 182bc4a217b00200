"""Celery's settings."""

from django.conf import settings

broker_url = settings.BROKER_URL
broker_connection_retry_on_startup = True
broker_connection_timeout = 2
# kombu looks for unacknowledged messages every interval x throttle; the defaults mean 100 s.
broker_transport_options = {
    "visibility_timeout": 120,
    "unacked_restore_interval": 1,
    "socket_connect_timeout": 2,
    "socket_keepalive": True,
    # A broker that is away costs a request nothing, since the outbox has the message; workers have a
    # setting of their own for how long they try.
    "max_retries": 0,
}
accept_content = ["json"]
task_serializer = "json"
result_backend = None
task_ignore_result = True
task_acks_late = True
task_reject_on_worker_lost = True
worker_prefetch_multiplier = 1
worker_hijack_root_logger = False
# Ray wants a standard output with a file behind it.
worker_redirect_stdouts = False
worker_cancel_long_running_tasks_on_connection_loss = False
task_default_queue = "coordinator"
task_routes = {
    "tuning.*": {"queue": "tuner"},
    "training.*": {"queue": "tuner"},
    "overlap.*": {"queue": "tuner"},
    "cluster.*": {"queue": "coordinator"},
    "journal.*": {"queue": "coordinator"},
    "recovery.*": {"queue": "recovery"},
}
beat_scheduler = "celery.beat.Scheduler"
beat_max_loop_interval = 1
beat_schedule = {
    "sweep": {"task": "journal.sweep", "schedule": 5.0, "options": {"expires": 10}},
    "coordinate": {"task": "cluster.tick", "schedule": 1.0, "options": {"expires": 3}},
    "recover": {"task": "recovery.watch", "schedule": 5.0, "options": {"expires": 10}},
    "alerts": {"task": "recovery.alerts", "schedule": 2.0, "options": {"expires": 4}},
    "discover": {"task": "cluster.discover", "schedule": 15.0, "options": {"expires": 30}},
}
