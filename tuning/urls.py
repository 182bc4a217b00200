"""Addresses of studies and trials."""

from django.urls import URLPattern, URLResolver, path
from django.views.generic import RedirectView

from tuning.api import lending, trials, workloads
from tuning.pages import bubbles, figures, studies, study, submit, trial, work

api_urls: list[URLPattern | URLResolver] = [
    path("jobs/<uuid:job_id>/trials", trials.Trials.as_view(), name="api-trials"),
    path("jobs/<uuid:job_id>/trials.csv", trials.TrialsCsv.as_view(), name="api-trials-csv"),
    path("jobs/<uuid:job_id>/trials.parquet", trials.TrialsParquet.as_view(), name="api-trials-parquet"),
    path("jobs/<uuid:job_id>/timeline", trials.Timeline.as_view(), name="api-timeline"),
    path("jobs/<uuid:job_id>/lending", lending.JobLending.as_view(), name="api-lending"),
    path("workloads", workloads.Workloads.as_view(), name="api-workloads"),
    path("workloads/<str:name>", workloads.OneWorkload.as_view(), name="api-workload"),
]

page_urls: list[URLPattern | URLResolver] = [
    path("", studies.studies, name="studies"),
    path("studies", RedirectView.as_view(pattern_name="studies", query_string=True)),
    path("studies/new", submit.new_study, name="new-study"),
    path("studies/new/check", submit.check_study, name="check-study"),
    path("studies/<uuid:job_id>", study.study, name="study"),
    path("studies/<uuid:job_id>/head", study.head, name="study-head"),
    path("studies/<uuid:job_id>/trials", study.trials, name="study-trials"),
    path("studies/<uuid:job_id>/failures", study.failures, name="study-failures"),
    path("studies/<uuid:job_id>/decisions", study.decisions, name="study-decisions"),
    path("studies/<uuid:job_id>/ladder", study.ladder, name="study-ladder"),
    path("studies/<uuid:job_id>/transfer", study.transfer, name="study-transfer"),
    path("studies/<uuid:job_id>/check-transfer", study.check_transfer, name="check-transfer"),
    path("studies/<uuid:job_id>/cancel", study.cancel, name="cancel-study"),
    path("studies/<uuid:job_id>/resume", study.resume, name="resume-study"),
    path("studies/<uuid:job_id>/figures/<slug:name>", figures.figure, name="study-figure"),
    path("studies/<uuid:job_id>/trials/<int:number>", trial.trial, name="trial"),
    path("studies/<uuid:job_id>/trials/<int:number>/curve", trial.trial_curve, name="trial-curve"),
    path("training/<uuid:job_id>/bubbles", bubbles.panel, name="bubbles"),
    path("training/<uuid:job_id>/bubbles/switch", bubbles.switch, name="switch-lending"),
    path("training/<uuid:job_id>/bubbles/timeline", bubbles.timeline, name="bubble-timeline"),
    path("training/<uuid:job_id>/bubbles/use", bubbles.use_over_time, name="bubble-use"),
    path("devices/work", work.device_work, name="device-work"),
]
