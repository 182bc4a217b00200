"""What a kind of job must be able to do. Folders above `jobs` register theirs when Django starts."""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from cluster.core.queue.demand import Demand
from jobs.core.errors import InvalidSpec
from jobs.core.scheduling import Scheduling
from jobs.core.states import JobKind
from jobs.models import Job


class KindHandler(Protocol):
    """The part of a job's life that only its kind knows.

    It may also have `own_fields`, the scheduling fields that its spec reads itself, and `demand`, which says
    what the job asks of the queue; for kinds without it see `jobs.services.demands`.
    """

    def check(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Return the complete, validated spec; raise InvalidSpec with pointers below /spec."""

    def created(self, job: Job) -> None:
        """Add the kind's own rows in the transaction that created the job."""

    def resumed(self, job: Job) -> None:
        """Prepare the kind's own rows for another run in the transaction that resumes the job."""

    def wake(self, job: Job) -> None:
        """Ring whoever works on jobs of this kind."""


@runtime_checkable
class Demanding(Protocol):
    """A kind that knows what its jobs ask of the queue."""

    def demand(self, spec: Mapping[str, Any], fields: Scheduling, now_s: float) -> Demand:
        """Return what a job with this checked spec asks for; raise InvalidSpec where it makes no sense."""


_handlers: dict[JobKind, KindHandler] = {}


def own_fields(handler: KindHandler) -> frozenset[str]:
    """Return the scheduling fields that a kind's spec reads itself."""
    return frozenset(getattr(handler, "own_fields", ()))


def register_kind(kind: JobKind, handler: KindHandler) -> None:
    """Make a kind of job available."""
    _handlers[kind] = handler


def available_kinds() -> list[str]:
    """Return the kinds that can be submitted here."""
    return [kind.value for kind in _handlers]


def handler_of(kind: str) -> KindHandler:
    """Return a kind's handler; raise InvalidSpec at /kind if there is none."""
    if kind not in available_kinds():
        raise InvalidSpec([("/kind", f"unknown kind '{kind}': choose one of {', '.join(available_kinds())}")])
    return _handlers[JobKind(kind)]
