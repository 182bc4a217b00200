"""Whatever a trial does, it is one failed trial with its reason, and the others go on."""

from pathlib import Path

import pytest

from tuning.models import Trial, Workload
from workers.trainer.describe import describe
from workers.tuner.driver import drive_study

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(280)]
REFERENCE = "misbehaving:Misbehaving"


def test_a_trial_that_diverges_raises_is_killed_or_falls_silent_is_one_failed_trial(
    submit_study, monkeypatch, settings
):
    folder = str(Path(__file__).parent)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", folder)
    settings.TRIAL_SILENCE_S = 10
    Workload.objects.create(name=REFERENCE, description=describe(REFERENCE))
    job = submit_study(workload=REFERENCE, search="grid", trials=5, scaling=1, fusion="off")
    drive_study(job.pk)
    job.refresh_from_db()
    outcome = {t.config["mode"]: (t.state, t.reason or "") for t in Trial.objects.filter(job=job)}
    assert job.state == "completed", outcome
    assert outcome["well"] == ("completed", "")
    assert {state for mode, (state, _) in outcome.items() if mode != "well"} == {"failed"}
    assert "non-finite" in outcome["diverge"][1]
    assert "this configuration cannot be trained" in outcome["raise"][1]
    assert "process" in outcome["killed"][1]
    assert "no report for 10 s" in outcome["silent"][1]
