"""How guests are held to their bubbles, and what ends them."""

from dataclasses import dataclass

from cluster.core.coordinator.lending import CONTROL_EVERY, LendingPolicy


@dataclass(frozen=True)
class Rules:
    """The usual rules are the defaults; the others exist to be measured against them.

    Attributes:
        hooks: guests run by permission for one bubble; without, they are never asked to pause.
        signals: a guest that does not run by permission, or has not paused `grace_s` after its bubble (at
            once, in the lowest class), is stopped by signal.
        bounded: outside bubbles guests are held back at all.
        fits: the step-fits and memory rules choose the guest of a bubble.
        preemptible: the device takes itself back at once (a core with the guest in the lowest class), so a
            guest may go on past the expected length; elsewhere it pauses `guard_s` before.
        control_every: one iteration in so many is left alone, to measure the slowdown; 0 for none.
        reserve_bytes: memory of the node that must stay available; below, the largest guest is ended.
        spin_s: processor time without a pause point after which a guest is ended.
        leave_s: time a guest has to write a checkpoint when it must go.
        lending: the slowdown at which lending ends by itself, and when it is tried again.
        outstayed: an announced bubble counts as forgotten after so many times its expected length, and
            `outstayed_s` at least.
    """

    hooks: bool = True
    signals: bool = True
    bounded: bool = True
    fits: bool = True
    preemptible: bool = True
    control_every: int = CONTROL_EVERY
    grace_s: float = 0.002
    guard_s: float = 0.001
    reserve_bytes: int = 256 * 2**20
    spin_s: float = 120.0
    leave_s: float = 10.0
    lending: LendingPolicy = LendingPolicy()
    outstayed: float = 20.0
    outstayed_s: float = 5.0
