"""What a driver writes of what its ranks say, so that the driver after it goes on from there."""

import pytest

from cluster.core.roles import Role
from cluster.services.leases import release_lease, take_lease
from jobs.models import Iteration
from jobs.services.training_runs import claim_run
from telemetry.models import Verdict
from tests.workers.training.reports import report
from workers.training.crew import Crew

pytestmark = pytest.mark.django_db(transaction=True)


class Fleet:
    """Ranks that say what a test has them say."""

    epoch = 0

    def __init__(self):
        self.events, self.known_steps = [], []

    def known(self, step):
        self.known_steps.append(step)

    def poll(self):
        events, self.events = self.events, []
        return events

    def lost(self):
        return set()

    def silent_s(self, rank):
        return 0.0


@pytest.fixture
def job(demo):
    owner = demo.person("ada")
    return demo.training(owner, demo.team_with(owner, Role.ADMIN))


@pytest.fixture
def drive(job, request):
    """Return a driver's crew after its start at a step, with the lease it holds."""

    def start(step=0):
        held = take_lease(name=f"training:{job.pk}", owner="me", seconds=60)
        rows = [{"rank": rank, "id": None, "node": "n", "kind": "cpu"} for rank in range(4)]
        crew = Crew(job, claim_run(job_id=job.pk, held=held, devices=rows)[1], held, Fleet())
        for rank in sorted(crew.helm.order.working):
            say(crew, {"kind": "resumed", "epoch": 0, "plan_rank": rank, "step": step, "pause_s": 0.1})
        turn(crew)
        return crew

    return start


def say(crew, *events):
    crew.fleet.events += events


def turn(crew):
    crew.listen()
    crew.turn()


def iterations(crew, steps, ranks=None):
    for rank in sorted(crew.book.seats) if ranks is None else ranks:
        say(crew, *(report(step, rank, loss=1.0) for step in steps))


def checkpoint(crew, step):
    say(crew, {"kind": "checkpoint", "plan_rank": 0, "step": step, "path": f"/step-{step}", "epoch": 0})


def recorded(crew):
    crew.run.refresh_from_db()
    rows = Iteration.objects.filter(run=crew.run).order_by("step").values_list("step", flat=True)
    return crew.run.checkpoint_step, list(rows)


def test_a_checkpoint_is_written_down_with_the_iterations_before_it(drive):
    crew = drive()
    iterations(crew, range(1, 4))
    iterations(crew, range(4, 7), ranks=[0])
    checkpoint(crew, 6)
    turn(crew)
    assert recorded(crew) == (None, [1, 2, 3])
    assert not crew.can_write_checkpoint
    iterations(crew, range(4, 7), ranks=sorted(crew.book.seats)[1:])
    turn(crew)
    assert recorded(crew) == (6, [1, 2, 3, 4, 5, 6])
    assert crew.fleet.known_steps == [6]  # only now may ranks delete what came before it
    assert crew.can_write_checkpoint


def test_a_driver_after_one_that_died_between_misses_no_iteration(drive):
    first = drive()
    iterations(first, range(1, 4))
    checkpoint(first, 3)
    turn(first)
    iterations(first, range(4, 9), ranks=[0])
    checkpoint(first, 8)
    turn(first)
    release_lease(first.held)
    second = drive(first.run.checkpoint_step)
    iterations(second, range(4, 9))
    turn(second)
    assert recorded(second) == (3, list(range(1, 9)))


def test_of_several_checkpoints_the_newest_that_is_due_counts(drive):
    crew = drive()
    for step in (2, 4, 6):
        checkpoint(crew, step)
    iterations(crew, range(1, 6))
    turn(crew)
    assert recorded(crew)[0] == 4
    iterations(crew, [6])
    turn(crew)
    assert recorded(crew)[0] == 6


def test_a_layout_that_goes_on_earlier_forgets_what_came_after(drive):
    crew = drive()
    iterations(crew, range(1, 5), ranks=[0])
    checkpoint(crew, 4)
    crew.listen()
    crew.enter(crew.run.layout, 2, expected_s=None, fresh=True)
    crew.run.step = 2
    iterations(crew, [3])
    turn(crew)
    assert recorded(crew) == (None, [1, 2, 3])


def test_an_incident_that_grows_is_planned_for_again(drive, monkeypatch):
    rung = []
    monkeypatch.setattr("workers.training.crew.ring_recovery", rung.append)
    crew = drive()

    def slow(steps, factor):
        for rank in sorted(crew.book.seats):
            own_s = factor if rank == 1 else 1.0
            say(crew, *(report(step, rank, seconds=own_s, loss=1.0) for step in steps))
        turn(crew)

    for step in range(1, 60):
        slow([step], 1.0)
    for step in range(60, 100):
        slow([step], 1.5)
    verdict = Verdict.objects.get(kind="device_fail_slow")
    assert (verdict.subject["rank"], len(rung)) == (1, 1)
    for step in range(100, 160):
        slow([step], 5.0)
    verdict.refresh_from_db()
    assert verdict.factor > 3
    assert 1 < len(rung) < 6
