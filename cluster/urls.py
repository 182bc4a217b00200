"""Addresses of the cluster."""

from django.urls import URLPattern, URLResolver, path

from cluster.api import audit, devices, queue, quotas, rehearsal, reservations, teams
from cluster.pages import accounting, capacity, whatif
from cluster.pages import devices as device_pages
from cluster.pages import queue as queue_pages
from cluster.pages import quotas as quota_pages
from cluster.pages import reservations as reservation_pages

api_urls: list[URLPattern | URLResolver] = [
    path("me", teams.Me.as_view(), name="api-me"),
    path("teams", teams.Teams.as_view(), name="api-teams"),
    path("teams/<uuid:team_id>", teams.OneTeam.as_view(), name="api-team"),
    path("teams/<uuid:team_id>/quota", quotas.TeamQuota.as_view(), name="api-team-quota"),
    path("teams/<uuid:team_id>/reservations", reservations.Reservations.as_view(), name="api-reservations"),
    path(
        "teams/<uuid:team_id>/reservations/<str:name>",
        reservations.OneReservation.as_view(),
        name="api-reservation",
    ),
    path("queue", queue.Queue.as_view(), name="api-queue"),
    path("queue/hold", queue.Hold.as_view(), name="api-hold-queue"),
    path("queue/release", queue.Release.as_view(), name="api-release-queue"),
    path("queue/policy", queue.QueuePolicy.as_view(), name="api-queue-policy"),
    path("queue/preview", queue.Preview.as_view(), name="api-queue-preview"),
    path("rehearsal", rehearsal.Rehearsal.as_view(), name="api-rehearsal"),
    path("devices", devices.Devices.as_view(), name="api-devices"),
    path("devices/<uuid:device_id>", devices.OneDevice.as_view(), name="api-device"),
    path("devices/<uuid:device_id>/cordon", devices.Cordon.as_view(), name="api-cordon-device"),
    path("devices/<uuid:device_id>/drain", devices.Drain.as_view(), name="api-drain-device"),
    path("devices/<uuid:device_id>/uncordon", devices.Uncordon.as_view(), name="api-uncordon-device"),
    path("audit", audit.Audit.as_view(), name="api-audit"),
    path("audit/verify", audit.VerifyAudit.as_view(), name="api-verify-audit"),
]

page_urls: list[URLPattern | URLResolver] = [
    path("devices", device_pages.devices, name="devices"),
    path("devices/<uuid:device_id>/<slug:action>", device_pages.move, name="move-device"),
    path("nodes/<uuid:node_id>/<slug:action>", device_pages.move_all, name="move-node"),
    path("queue", queue_pages.queue, name="queue"),
    path("queue/hold", queue_pages.hold, name="hold-queue"),
    path("queue/policy", queue_pages.policy, name="queue-policy"),
    path("queue/jobs/<uuid:job_id>/hold", queue_pages.hold_job, name="hold-job"),
    path("reservations", reservation_pages.reservations, name="reservations"),
    path("capacity", capacity.capacity, name="capacity"),
    path("quotas", quota_pages.quotas, name="quotas"),
    path("quotas/<uuid:team_id>", quota_pages.team_quota, name="team-quota"),
    path("what-if", whatif.what_if, name="what-if"),
    path("accounting", accounting.accounting, name="accounting"),
    path("accounting.csv", accounting.accounting_csv, name="accounting-csv"),
]
