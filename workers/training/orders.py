"""A change of layout under way, from the order to the last rank that goes on."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID


@dataclass
class Order:
    """What was ordered: `epoch` counts the fleet's orders, `working` are the ranks that must go on in it."""

    epoch: int
    plan: dict[str, Any]
    working: set[int]
    reconfiguration_id: UUID | None = None
    predicted_s: float | None = None
    kind: str = ""
    began_s: float = field(default_factory=time.monotonic)
    phases: dict[str, float] = field(default_factory=dict)
    resumed: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    failure: str | None = None

    def take(self, event: Mapping[str, Any]) -> None:
        """Take an event of this order: a phase, a rank that goes on, a failure."""
        if event.get("epoch") != self.epoch:
            return
        if event["kind"] == "phase":
            name = event["name"]
            # Ranks go through a phase together: the slowest one says how long it took.
            self.phases[name] = max(self.phases.get(name, 0.0), float(event["seconds"]))
        elif event["kind"] == "resumed":
            self.resumed[event["plan_rank"]] = event
        elif event["kind"] == "failed":
            self.failure = f"rank {event['plan_rank']}: {event['reason']}"

    @property
    def missing(self) -> set[int]:
        """The ranks that do not go on yet."""
        return self.working - set(self.resumed)

    def died(self, lost: set[int]) -> set[int]:
        """Return ranks that the layout needs and that are gone."""
        return lost & self.working

    @property
    def waited_s(self) -> float:
        """Seconds since it was ordered."""
        return time.monotonic() - self.began_s

    @property
    def step(self) -> int:
        """The committed step at which all go on."""
        return max((int(event["step"]) for event in self.resumed.values()), default=0)

    @property
    def restored(self) -> str | None:
        """The checkpoint all went back to, if they did."""
        found = [event.get("restored") for event in self.resumed.values() if event.get("restored")]
        return str(found[0]) if found else None

    def outcome(self) -> dict[str, Any]:
        """Return what the change took."""
        return {
            "phases": {name: round(seconds, 4) for name, seconds in self.phases.items()},
            "pause_s": max((float(event["pause_s"]) for event in self.resumed.values()), default=None),
            "sent_bytes": sum(int(event.get("sent_bytes") or 0) for event in self.resumed.values()),
            "restored": self.restored,
            "step": self.step,
        }


def working_in(plan: Mapping[str, Any]) -> set[int]:
    """Return the ranks that a layout puts to work."""
    return {int(name[1:]) for r in plan["replicas"] for stage in r["stages"] for name in stage["devices"]}


def left_out(plan: Mapping[str, Any], ranks: int) -> dict[str, list[str]]:
    """Return the ranks that a layout leaves idle or knows to be dead, as a layout document says it."""
    working = working_in(plan)
    dead = [name for name in plan.get("dead", []) if int(name[1:]) not in working]
    idle = [f"r{rank}" for rank in range(ranks) if rank not in working and f"r{rank}" not in dead]
    return {"idle": idle, "dead": dead}
