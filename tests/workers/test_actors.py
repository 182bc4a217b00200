"""The desk between the thread that trains and the driver that asks."""

import threading

import pytest

from tuning.core.study.events import ContainerEnded, Reported
from workers import actors
from workers.actors import Desk
from workers.trainer.orders import Verdict

pytestmark = pytest.mark.timeout(60)
REPORT = Reported("run", 1, {0: {"loss": 1.0}})


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A desk that would wait far longer than a test may take for reports to gather."""
    monkeypatch.setattr(actors, "GATHER_S", 3600.0)
    return Desk("run")


def test_reports_of_epochs_gather_until_something_urgent_happens(desk: Desk) -> None:
    desk.report(REPORT)
    desk.report(REPORT)
    end = threading.Thread(target=desk.report, args=[ContainerEnded("run", 0.0, "finished", 2)])
    end.start()
    assert [event["event"] for event in desk.fetch(0)] == ["Reported", "Reported", "ContainerEnded"]
    end.join()


def test_a_container_that_waits_for_a_verdict_does_not_wait_for_reports_to_gather(desk: Desk) -> None:
    desk.report(REPORT)
    answers: list[Verdict] = []
    container = threading.Thread(target=lambda: answers.append(desk.verdict(1)))
    container.start()
    assert len(desk.fetch(0)) == 1
    with desk.news:
        desk.verdicts[1] = Verdict((0,))
        desk.news.notify_all()
    container.join()
    assert answers == [Verdict((0,))]


def test_reports_alone_are_delivered_too(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actors, "GATHER_S", 0.01)
    desk.report(REPORT)
    assert len(desk.fetch(0)) == 1
    monkeypatch.setattr(actors, "LONG_POLL_S", 0.01)
    assert desk.fetch(1) == []
