"""Which guest may use a bubble: the step-fits rule, the memory rule, and how many trials to fuse for it.

A bubble is promised with a low percentile of its length, so a step that fits rarely outlasts it; a guest
whose step does not fit is skipped: what a half-finished step holds stays in memory until the next bubble.
A step that fits no bubble at all would wait for ever. Where a device takes itself back at once (a core, with
the guest in the lowest class) such a guest goes on in pieces, from pause point to pause point.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

MEMORY_SHARE = 0.9  # of the free memory a guest may plan with
STEP_SHARE = 0.8  # of the expected length one step may take
LATENCY_S = 0.0003  # to wake a guest, and again to stop it
PATIENCE_S = 2.0  # without one bubble that holds its step a guest waits so long before it goes on in pieces


@dataclass(frozen=True, slots=True)
class Slot:
    """A bubble: the least it usually lasts, how often it comes, memory left for guests (theirs included)."""

    slot: int
    expected_s: float
    period_s: float
    free_bytes: int


@dataclass(frozen=True, slots=True)
class GuestProfile:
    """A fused container as a guest: its trials, seconds of one step, bytes it holds, how much it has run.

    `unfitted_s` says for how long no bubble has held a step of it.
    """

    name: str
    size: int
    step_s: float
    held_bytes: int
    ran_s: float = 0.0
    unfitted_s: float = 0.0


@dataclass(frozen=True, slots=True)
class SlotDecision:
    """Who gets the bubble (None: nobody) and why.

    `rule` is what decided: fits, pieces, step, memory or nobody.
    """

    guest: str | None
    reason: str
    rule: str = "fits"


def refusal(guest: GuestProfile, slot: Slot, elapsed_s: float = 0.0) -> str | None:
    """Why a guest may not use a bubble of which `elapsed_s` are over; None if it may."""
    return _too_large(guest, slot) or _too_long(guest, slot, elapsed_s)


def _too_large(guest: GuestProfile, slot: Slot) -> str | None:
    limit_bytes, share = MEMORY_SHARE * slot.free_bytes, f"{MEMORY_SHARE:.0%}"
    if guest.held_bytes > limit_bytes:
        return f"{_mb(guest.held_bytes)} needed, {_mb(limit_bytes)} are {share} of what the device has left"
    return None


def _too_long(guest: GuestProfile, slot: Slot, elapsed_s: float) -> str | None:
    limit_s = STEP_SHARE * slot.expected_s
    if guest.step_s > limit_s:
        return f"a step takes {_ms(guest.step_s)}, {_ms(limit_s)} are {STEP_SHARE:.0%} of the bubble"
    left_s = slot.expected_s - elapsed_s - 2 * LATENCY_S
    if guest.step_s > left_s:
        return f"a step takes {_ms(guest.step_s)}, only {_ms(max(left_s, 0.0))} of the bubble are left"
    return None


def choose_guest(
    slot: Slot, guests: Sequence[GuestProfile], elapsed_s: float = 0.0, *, preemptible: bool = False
) -> SlotDecision:
    """Give a bubble to the largest container that fits; among equals to the one that has run least.

    On a `preemptible` device, one that takes itself back at once, a bubble that nobody fits goes to whoever
    has found none for `PATIENCE_S`, the longest first, if the device has the memory.
    """
    if not guests:
        return SlotDecision(None, "no guest waits", "nobody")
    reasons = {guest.name: refusal(guest, slot, elapsed_s) for guest in guests}
    fitting = [guest for guest in guests if reasons[guest.name] is None]
    if fitting:
        best = min(fitting, key=lambda guest: (-guest.size, guest.ran_s, guest.name))
        return SlotDecision(
            best.name, f"{best.size} trials, {_ms(best.step_s)} a step of {_ms(slot.expected_s)}"
        )
    late = [g for g in guests if g.unfitted_s > PATIENCE_S and not _too_large(g, slot)] if preemptible else []
    if late:
        longest = min(late, key=lambda guest: (-guest.unfitted_s, guest.name))
        reason = f"no bubble holds its step of {_ms(longest.step_s)}: it goes on in pieces"
        return SlotDecision(longest.name, reason, "pieces")
    nearest = min(guests, key=lambda guest: (guest.step_s, guest.name))
    rule = "memory" if _too_large(nearest, slot) else "step"
    return SlotDecision(None, f"{nearest.name}: {reasons[nearest.name]}", rule)


def largest_fitting(
    slot: Slot,
    step_s: Callable[[int], float],
    held_bytes: Callable[[int], float],
    sizes: Sequence[int],
) -> tuple[int | None, str]:
    """Return the largest number of fused trials that fits a bubble, or None, and the reason."""
    reason = "no size was offered"
    for size in sorted(sizes, reverse=True):
        profile = GuestProfile(f"F={size}", size, step_s(size), round(held_bytes(size)))
        found = refusal(profile, slot)
        if found is None:
            return size, f"F={size} is the largest that fits: {_ms(profile.step_s)} of {_ms(slot.expected_s)}"
        reason = f"F={size}: {found}"
    return None, reason


def fusion_for_slots(
    slots: Sequence[Slot],
    step_s: Callable[[int], float],
    held_bytes: Callable[[int], float],
    sizes: Sequence[int],
) -> tuple[int | None, Mapping[int, float]]:
    """Return the size that makes most trial steps a second in a device's bubbles, and every size's rate.

    A container keeps its size from bubble to bubble: a larger one does more a second and fits fewer of them.
    """
    rates: dict[int, float] = {}
    for size in sizes:
        seconds, profile = step_s(size), GuestProfile("", size, step_s(size), round(held_bytes(size)))
        rates[size] = sum(
            (slot.expected_s - 2 * LATENCY_S) / seconds * size / slot.period_s
            for slot in slots
            if refusal(profile, slot) is None
        )
    best = max(sorted(rates), key=lambda size: rates[size], default=None)
    return (best if best is not None and rates[best] > 0 else None), rates


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"


def _mb(count: float) -> str:
    return f"{count / 2**20:.4g} MiB"
