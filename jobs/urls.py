"""Addresses of jobs."""

from django.urls import URLPattern, URLResolver, path

from jobs.api import artifacts, events, jobs, reconfigurations, training
from jobs.pages import overlaps

page_urls: list[URLPattern | URLResolver] = [
    path("overlaps", overlaps.overlaps, name="overlaps"),
    path("overlaps/new", overlaps.new_overlap, name="new-overlap"),
    path("overlaps/<uuid:job_id>", overlaps.overlap, name="overlap"),
    path("overlaps/<uuid:job_id>/answer", overlaps.overlap_answer, name="overlap-answer"),
    path("overlaps/<uuid:job_id>/figures/<slug:name>", overlaps.overlap_figure, name="overlap-figure"),
    path("overlaps/<uuid:job_id>/cancel", overlaps.cancel_overlap, name="cancel-overlap"),
    path("overlaps/<uuid:job_id>/resume", overlaps.resume_overlap, name="resume-overlap"),
]

api_urls: list[URLPattern | URLResolver] = [
    path("jobs", jobs.Jobs.as_view(), name="api-jobs"),
    path("jobs/<uuid:job_id>", jobs.OneJob.as_view(), name="api-job"),
    path("jobs/<uuid:job_id>/cancel", jobs.Cancel.as_view(), name="api-cancel-job"),
    path("jobs/<uuid:job_id>/resume", jobs.Resume.as_view(), name="api-resume-job"),
    path("jobs/<uuid:job_id>/events", events.JobEvents.as_view(), name="api-job-events"),
    path("jobs/<uuid:job_id>/inject", training.Inject.as_view(), name="api-inject"),
    path("reconfigurations", reconfigurations.Reconfigurations.as_view(), name="api-reconfigurations"),
    path(
        "reconfigurations/<uuid:reconfiguration_id>",
        reconfigurations.OneReconfiguration.as_view(),
        name="api-reconfiguration",
    ),
    path(
        "reconfigurations/<uuid:reconfiguration_id>/approve",
        reconfigurations.Approve.as_view(),
        name="api-approve",
    ),
    path(
        "reconfigurations/<uuid:reconfiguration_id>/reject",
        reconfigurations.Reject.as_view(),
        name="api-reject",
    ),
    path("artifacts/<uuid:artifact_id>", artifacts.OneArtifact.as_view(), name="api-artifact"),
]
