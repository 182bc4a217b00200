"""Which devices a study may use now: what the queue has given it, and what it still has to leave."""

import time
from collections.abc import Callable, Collection, Mapping

from cluster.models import Device
from jobs.models import Job
from jobs.services.grants import gave_back, grant_of, others_wait, want

EVERYTHING = 4096
# (devices, since when which of them has been idle, now) -> those that go back to the queue
Releases = Callable[[Mapping[str, Device], Mapping[str, float], float], list[str]]


class StudyDevices:
    """The devices of a study as last seen.

    Attributes:
        labels: label -> device of everything new runs may be placed on.
        leaving: label -> device of everything that has to be given back as soon as nothing runs on it.
        stopping: the study has to leave all of its devices and then the queue's running jobs.
    """

    def __init__(self, job: Job) -> None:
        self.job_id = job.pk
        self.labels: dict[str, Device] = {}
        self.leaving: dict[str, Device] = {}
        self.stopping = False
        self.idle_since: dict[str, float] = {}
        self.shrunk = False
        self.made_room = False

    def look(self, busy: set[str], releases: Releases) -> list[str]:
        """Read the grant again and give back what has to go and is not busy; return the labels given back.

        `releases` says which of the devices go that have had nothing to do since the given times.
        """
        grant = grant_of(self.job_id)
        held = {str(device): device for device in grant.devices} if grant else {}
        self.stopping = grant is not None and grant.stopping
        self.leaving = {str(device): device for device in grant.leaving} if grant else {}
        if self.stopping:
            held, self.leaving = {}, {**self.leaving, **held}
        self.labels = held
        gone = [label for label in self.leaving if label not in busy]
        if gone and not self.stopping:
            gave_back(self.job_id, [self.leaving.pop(label) for label in gone])
        return gone + self._return_idle(busy, releases)

    def make_room(self, helping: Collection[str]) -> None:
        """Give up devices that only speed a target up while other jobs wait, and ask again once none does.

        Without this a study would keep them for as long as the target trains: they are never idle.
        """
        if not helping and not self.made_room:
            return
        waiting = others_wait(self.job_id)
        spare = len(set(helping) & set(self.labels))
        if waiting and spare and not self.leaving and not self.stopping:
            self.made_room = True
            want(self.job_id, max(1, len(self.labels) - spare))
        elif self.made_room and not waiting:
            self.made_room = False
            want(self.job_id, EVERYTHING)

    def add(self, labels: dict[str, Device], leaving: dict[str, Device]) -> None:
        """Add what is lent rather than granted: it counts for no quota and is given back to nobody."""
        if not self.stopping:
            self.labels = {**self.labels, **labels}
            self.leaving = {**self.leaving, **leaving}

    def _return_idle(self, busy: set[str], releases: Releases) -> list[str]:
        """Give back devices that have long been idle, and ask for more again once all are busy."""
        now = time.monotonic()
        idle = [label for label in self.labels if label not in busy]
        self.idle_since = {label: self.idle_since.get(label, now) for label in idle}
        if self.shrunk and self.labels and not idle:
            self.shrunk = False
            want(self.job_id, EVERYTHING)
        surplus = releases(self.labels, self.idle_since, now) if self.labels else []
        if not surplus:
            return []
        gave_back(self.job_id, [self.labels.pop(label) for label in surplus])
        want(self.job_id, len(self.labels))
        self.shrunk = True
        return surplus
