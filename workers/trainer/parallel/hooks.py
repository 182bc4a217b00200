"""What may use the time in which a rank waits for another."""

from collections.abc import Callable
from typing import Protocol


class BubbleHook(Protocol):
    """Told when the rank's thread begins to wait and when it goes on.

    `slot` numbers the waits of an iteration: the index of the instruction that waits, and the number of
    instructions for the wait at the end. `expected_s` is the recent mean of this slot's wait, 0 at first.
    Both calls come from the training thread and must return at once.
    """

    def on_bubble_enter(self, slot: int, expected_s: float) -> None:
        """The rank waits from now on."""

    def on_bubble_exit(self, slot: int) -> None:
        """What the rank waited for has arrived."""

    def begin_epoch(self, epoch: int) -> None:
        """The layout has changed, and with it the slots; no bubble is open."""


# Makes the hook of a rank in the rank's own process, to which it must be possible to send it.
MakeHook = Callable[[], BubbleHook]


def no_hook(rank: int) -> MakeHook | None:
    """For ranks whose waits nobody uses."""
    return None
