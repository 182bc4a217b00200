"""Addresses of what was observed, of training jobs, and of what is decided about them."""

from django.urls import URLPattern, URLResolver, path

from telemetry.api import failures, verdicts, webhooks
from telemetry.pages import failures as failure_pages
from telemetry.pages import fleet, incidents, submit_training, training, training_figures, training_list
from telemetry.pages import webhooks as webhook_pages

api_urls: list[URLPattern | URLResolver] = [
    path("failure-events", failures.FailureEvents.as_view(), name="api-failure-events"),
    path("verdicts", verdicts.Verdicts.as_view(), name="api-verdicts"),
    path("verdicts/<uuid:verdict_id>", verdicts.OneVerdict.as_view(), name="api-verdict"),
    path("webhooks", webhooks.Webhooks.as_view(), name="api-webhooks"),
    path("webhooks/<uuid:webhook_id>", webhooks.OneWebhook.as_view(), name="api-webhook"),
    path("webhooks/<uuid:webhook_id>/test", webhooks.TestWebhook.as_view(), name="api-test-webhook"),
    path("webhooks/<uuid:webhook_id>/deliveries", webhooks.Deliveries.as_view(), name="api-deliveries"),
    path(
        "webhooks/<uuid:webhook_id>/deliveries/<uuid:delivery_id>/retry",
        webhooks.Redeliver.as_view(),
        name="api-redeliver",
    ),
]

page_urls: list[URLPattern | URLResolver] = [
    path("failures", failure_pages.failures, name="failures"),
    path("failures/statistics", failure_pages.statistics, name="failure-statistics"),
    path("failures/figure", training_figures.failure_figure, name="failure-figure"),
    path("fleet", fleet.fleet, name="fleet"),
    path("fleet/nodes/<uuid:node_id>", fleet.node, name="fleet-node"),
    path("fleet/devices/<uuid:device_id>", fleet.device, name="fleet-device"),
    path("jobs/<uuid:job_id>", training_list.job, name="job"),
    path("training", training_list.training_jobs, name="training-jobs"),
    path("training/new", submit_training.new_training, name="new-training"),
    path("training/new/check", submit_training.check_training, name="check-training"),
    path("training/<uuid:job_id>", training.training_job, name="training-job"),
    path("training/<uuid:job_id>/head", training.head, name="training-head"),
    path("training/<uuid:job_id>/recovery", training.recovery, name="training-recovery"),
    path("training/<uuid:job_id>/cancel", training.cancel, name="cancel-training"),
    path("training/<uuid:job_id>/resume", training.resume, name="resume-training"),
    path("training/<uuid:job_id>/inject", training.inject, name="inject-fault"),
    path(
        "training/<uuid:job_id>/figures/<slug:name>", training_figures.training_figure, name="training-figure"
    ),
    path("incidents", incidents.incidents, name="incidents"),
    path("incidents/<uuid:verdict_id>", incidents.incident, name="incident"),
    path("incidents/<uuid:verdict_id>/series", training_figures.verdict_series, name="verdict-series"),
    path("approvals", incidents.approvals, name="approvals"),
    path("approvals/count", incidents.approval_count, name="approval-count"),
    path("reconfigurations/<uuid:reconfiguration_id>", incidents.reconfiguration, name="reconfiguration"),
    path("reconfigurations/<uuid:reconfiguration_id>/<slug:decision>", incidents.decide, name="decide"),
    path("webhooks", webhook_pages.webhooks, name="webhooks"),
    path("webhooks/<uuid:webhook_id>/delete", webhook_pages.remove, name="delete-webhook"),
    path("webhooks/<uuid:webhook_id>/test", webhook_pages.test, name="test-webhook"),
    path(
        "webhooks/<uuid:webhook_id>/deliveries/<uuid:delivery_id>", webhook_pages.redeliver, name="redeliver"
    ),
]
