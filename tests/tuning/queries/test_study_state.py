"""What a client gets that joins the stream of a study late."""

import pytest

from cluster.core.roles import Role
from telemetry.core.streams import StreamName
from telemetry.queries.streams import snapshot_of
from tuning.models import Container, Trial
from tuning.queries.study_state import LATEST


@pytest.fixture
def study(db, demo):
    owner = demo.person("ada")
    return demo.study(owner, demo.team_with(owner, Role.RESEARCHER), trials=300)


def test_a_late_client_is_told_the_states_the_running_and_the_latest(study):
    Trial.objects.filter(job=study, number__in=(3, 7)).update(state="running", ended_s=None)
    Container.objects.filter(job=study, run=Container.objects.earliest("start_s").run).update(end_s=None)
    found = snapshot_of(StreamName("job", study.pk))
    assert found["job"]["id"] == str(study.pk)
    trials = found["trials"]
    assert sum(trials["by_state"].values()) == 300
    assert (trials["by_state"]["running"], [row["trial"] for row in trials["running"]]) == (2, [3, 7])
    last = Trial.objects.filter(job=study, ended_s__isnull=False).order_by("-ended_s", "-number")
    assert [row["trial"] for row in trials["latest"]] == [row.number for row in last[:LATEST]]
    assert set(trials["latest"][0]) == {
        "trial", "config", "metric", "epochs", "state", "reason", "device_seconds"
    }  # fmt: skip
    assert [row["end_s"] for row in found["containers"]] == [None]


def test_however_many_trials_there_are_it_takes_as_many_queries(study, django_assert_num_queries):
    with django_assert_num_queries(5):
        snapshot_of(StreamName("job", study.pk))
