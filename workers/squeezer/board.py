"""The board of a lent device: its owner announces bubbles here, the squeezer reads them.

`turn` is odd inside a bubble and even outside; it grows by one at every change. A permission names the turn
it is for, so one that comes late means nothing. The words of an announcement are written while `turn` is even
and stay until it is even again: a reader that finds the same odd turn before and after has read one bubble.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from workers.squeezer import futex
from workers.squeezer.pages import Page
from workers.squeezer.processes import birth_of

KIND = 0x0001_4452_4F42_4246  # "FBBORD", version 1
# written by the owner
_PID, _BIRTH, _EPOCH, TURN, _SLOT, _ENTERED, _EXPECTED, _FREE, _ROUND, _CORE, _CLOSED = range(1, 12)
_WAITED, _LENT, _USED, _LEAKED, _BUBBLES, _DEVICE = range(12, 18)
# written by the squeezer
_LISTENS, _GUESTS, MOST_GUESTS = 24, 25, 7
_RING, _ENTRIES, _ENTRY = 32, 256, 8
SIZE = _RING + _ENTRIES * _ENTRY


class Announcement(NamedTuple):
    """A bubble that has begun. `round` counts the owner's iterations; `expected_ns` is what it lasts at least
    nine times out of ten."""

    turn: int
    slot: int
    entered_ns: int
    expected_ns: int
    free_bytes: int
    round: int
    epoch: int


class Passed(NamedTuple):
    """A bubble that is over.

    `used_ns` is the guests' processor time inside it, `leaked_ns` what they used since the bubble before.
    """

    turn: int
    slot: int
    entered_ns: int
    left_ns: int
    used_ns: int
    leaked_ns: int
    round: int


@dataclass(frozen=True)
class Totals:
    """Sums of the board's life, in nanoseconds: all waiting, bubbles announced, guests inside, outside."""

    waited_ns: int
    lent_ns: int
    used_ns: int
    leaked_ns: int
    bubbles: int

    def since(self, earlier: "Totals") -> "Totals":
        """What was added."""
        return Totals(
            self.waited_ns - earlier.waited_ns,
            self.lent_ns - earlier.lent_ns,
            self.used_ns - earlier.used_ns,
            self.leaked_ns - earlier.leaked_ns,
            self.bubbles - earlier.bubbles,
        )


class _Side:
    def __init__(self, path: Path) -> None:
        self.page = Page(path, SIZE, KIND)
        self.words = self.page.words
        self.word = self.page.low(TURN)


class OwnBoard(_Side):
    """The owner's side. Nothing here waits for anybody."""

    def __init__(self, path: Path, pid: int, core: int, device: int) -> None:
        Page.create(path, SIZE, KIND)
        super().__init__(path)
        words = self.words
        words[_BIRTH], words[_CORE], words[_DEVICE] = birth_of(pid), core, device
        words[_PID] = pid

    def open(self, slot: int, now_ns: int, expected_ns: int, free_bytes: int, number: int) -> None:
        """Announce that a bubble has begun."""
        words = self.words
        words[_SLOT], words[_ENTERED], words[_EXPECTED] = slot, now_ns, expected_ns
        words[_FREE], words[_ROUND] = free_bytes, number
        words[TURN] += 1
        if words[_LISTENS]:
            futex.wake(self.word)

    def close(self, now_ns: int, used_ns: int, leaked_ns: int) -> None:
        """Announce that it is over."""
        words = self.words
        turn, length_ns = words[TURN], now_ns - words[_ENTERED]
        at = _RING + (turn // 2 % _ENTRIES) * _ENTRY
        entry = (turn, words[_SLOT], words[_ENTERED], now_ns, used_ns, leaked_ns, words[_ROUND])
        words[TURN] = turn + 1
        if words[_LISTENS]:
            futex.wake(self.word)
        for offset in reversed(range(len(entry))):
            words[at + offset] = entry[offset]
        words[_LENT] += length_ns
        words[_USED] += used_ns
        words[_LEAKED] += leaked_ns
        words[_BUBBLES] += 1

    def waited(self, length_ns: int) -> None:
        """Count a wait, announced or not."""
        self.words[_WAITED] += length_ns

    def begin_epoch(self, epoch: int) -> None:
        """Say that slots mean something else from now on."""
        self.words[_EPOCH] = epoch

    def farewell(self) -> None:
        """Say that no bubble will follow."""
        words = self.words
        words[TURN] += words[TURN] % 2
        words[_CLOSED] = 1
        futex.wake(self.word)

    @property
    def guests(self) -> list[int]:
        """Process numbers of the guests whose processor time is counted."""
        return [pid for pid in self.words[_GUESTS : _GUESTS + MOST_GUESTS] if pid]


class Board(_Side):
    """Everybody else's side."""

    @property
    def turn(self) -> int:
        """Odd inside a bubble."""
        return self.words[TURN]

    @property
    def owner(self) -> tuple[int, int]:
        """Process number of the owner and when it was born, in clock ticks since boot."""
        return self.words[_PID], self.words[_BIRTH]

    @property
    def core(self) -> int:
        """The processor core the owner is bound to; -1 if to none."""
        return self.words[_CORE]

    @property
    def device(self) -> int:
        """The index of the device on its node; -1 if the owner did not say."""
        return self.words[_DEVICE]

    @property
    def epoch(self) -> int:
        """The owner's layout: slots of another epoch mean something else."""
        return self.words[_EPOCH]

    @property
    def closed(self) -> bool:
        """Whether the owner has said farewell."""
        return bool(self.words[_CLOSED])

    def read(self) -> Announcement | None:
        """Return the present bubble; None between bubbles."""
        words = self.words
        turn = words[TURN]
        if turn % 2 == 0:
            return None
        found = Announcement(
            turn,
            words[_SLOT],
            words[_ENTERED],
            words[_EXPECTED],
            words[_FREE],
            words[_ROUND],
            words[_EPOCH],
        )
        return found if words[TURN] == turn else None

    def await_turn(self, turn: int, timeout_s: float) -> None:
        """Sleep while the turn is this one, at most `timeout_s`."""
        self.page.await_change(self.word, turn, timeout_s)

    def passed(self, after_turn: int) -> list[Passed]:
        """Return the bubbles after this turn, oldest first, as far as the board remembers them."""
        words, found = self.words, []
        for index in range(_ENTRIES):
            at = _RING + index * _ENTRY
            turn = words[at]
            entry = Passed(*words[at : at + len(Passed._fields)])
            # the oldest entry may be overwritten while it is read
            if turn > after_turn and words[at] == turn and turn + 2 * (_ENTRIES - 1) > words[TURN]:
                found.append(entry)
        return sorted(found)

    def totals(self) -> Totals:
        """Return the sums so far."""
        return Totals(*self.words[_WAITED : _BUBBLES + 1])

    def listen(self, listens: bool) -> None:
        """Say whether anybody wants to be woken (the squeezer alone calls this)."""
        self.words[_LISTENS] = int(listens)

    def count(self, guests: Sequence[int]) -> None:
        """Say whose processor time the owner counts (the squeezer alone calls this)."""
        for index in range(MOST_GUESTS):
            self.words[_GUESTS + index] = guests[index] if index < len(guests) else 0
