"""The gate of a guest: the squeezer writes what it may do, the guest writes what it does.

A permission is a turn of the board: it holds while the board shows exactly that turn. The end of a bubble
therefore closes the gate by itself, without anybody sending anything.
"""

import os
import statistics
import time
from collections import deque
from pathlib import Path

from workers.squeezer import futex
from workers.squeezer.board import TURN, Board
from workers.squeezer.pages import Page

KIND = 0x0001_4554_4147_4246  # "FBGATE", version 1
CLOSED, FREE = 0, -1  # permissions beside the turns
NEVER_NS = 2**62
# written by the squeezer
_PERMIT, _UNTIL, _SQUEEZER = 1, 2, 3
# written by the guest
_PID, _STATE, _ASKED, _RESUMED, _STEPS, _POINTS, _PAUSES, _SEEN, _STEP_NS = range(16, 25)
SIZE = 32
REMEMBERED, ENOUGH = 9, 3  # steps whose median is a step's time; fewer than ENOUGH say nothing

STARTING, RUNNING, PAUSED = 0, 1, 2
LOOK_S = 0.25


class Gate:
    """The squeezer's side."""

    def __init__(self, path: Path) -> None:
        Page.create(path, SIZE, KIND)
        self.page = Page(path, SIZE, KIND)
        self.words = self.page.words
        self._permit, self._state = self.page.low(_PERMIT), self.page.low(_STATE)
        self.words[_UNTIL] = NEVER_NS
        self.words[_SQUEEZER] = os.getpid()

    def permit(self, turn: int, until_ns: int = NEVER_NS) -> None:
        """Let the guest run in this turn (or `FREE`, or `CLOSED`), at most until then."""
        self.words[_UNTIL] = until_ns
        self.words[_PERMIT] = turn
        futex.wake(self._permit)

    @property
    def permitted(self) -> int:
        """The present permission."""
        return self.words[_PERMIT]

    @property
    def state(self) -> int:
        """What the guest says it does."""
        return self.words[_STATE]

    @property
    def steps(self) -> int:
        """Training steps begun."""
        return self.words[_STEPS]

    @property
    def step_s(self) -> float:
        """Processor seconds of a step of the present order, by the guest's own clock; 0 while unknown."""
        return self.words[_STEP_NS] / 1e9

    @property
    def points(self) -> int:
        """Pause points passed."""
        return self.words[_POINTS]

    @property
    def asked_ns(self) -> int:
        """When the guest last came to a closed gate."""
        return self.words[_ASKED]

    @property
    def resumed_ns(self) -> int:
        """When it last went on."""
        return self.words[_RESUMED]

    def await_pause(self, timeout_s: float) -> bool:
        """Wait for the guest to come to its gate; returns whether it did."""
        deadline = time.monotonic() + timeout_s
        while (state := self.state) != PAUSED:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            futex.wait_while(self._state, state, left_s)
        return True


class GuestGate:
    """The guest's side: `point` at every pause point, `step` at every training step."""

    def __init__(self, path: Path, board: Path) -> None:
        self.page = Page(path, SIZE, KIND)
        self.words, self._board = self.page.words, Board(board).words
        self._permit, self._state = self.page.low(_PERMIT), self.page.low(_STATE)
        self.words[_PID] = os.getpid()
        self._parent = os.getppid()
        self._steps_ns: deque[int] = deque(maxlen=REMEMBERED)
        self._began_ns = 0

    @property
    def steps(self) -> int:
        """Training steps begun."""
        return self.words[_STEPS]

    def point(self) -> None:
        """Return at once where the guest may run; otherwise when it may again."""
        words = self.words
        words[_POINTS] += 1
        permit = words[_PERMIT]
        if permit == FREE or (
            permit == self._board[TURN]
            and permit
            and (words[_UNTIL] == NEVER_NS or time.monotonic_ns() < words[_UNTIL])
        ):
            if words[_STATE] != RUNNING:
                self._resume()
            return
        self._pause()

    def begin(self) -> None:
        """Another order begins: its steps take another time."""
        self._steps_ns.clear()
        self._began_ns = self.words[_STEP_NS] = 0

    def step(self) -> None:
        """Count a training step and note what the one before took; a pause point as well.

        Waiting costs no processor time. The median leaves out what stands between two epochs: a step that
        seemed long because of it would fit no bubble, and never be measured again.
        """
        now_ns = time.process_time_ns()
        if self._began_ns:
            self._steps_ns.append(now_ns - self._began_ns)
            if len(self._steps_ns) >= ENOUGH:
                self.words[_STEP_NS] = int(statistics.median(self._steps_ns))
        self._began_ns = now_ns
        self.words[_STEPS] += 1
        self.point()

    def _resume(self) -> None:
        self.words[_RESUMED] = time.monotonic_ns()
        self.words[_STATE] = RUNNING

    def _pause(self) -> None:
        words = self.words
        words[_ASKED] = time.monotonic_ns()
        words[_PAUSES] += 1
        words[_STATE] = PAUSED
        futex.wake(self._state)
        while True:
            permit = words[_PERMIT]
            open_turn = permit == self._board[TURN] and permit
            if permit == FREE or (open_turn and time.monotonic_ns() < words[_UNTIL]):
                break
            futex.wait_while(self._permit, permit, LOOK_S)
            if os.getppid() != self._parent:
                os._exit(1)  # the squeezer is gone, and with it whoever would open the gate
        self._resume()


class GateView:
    """For whoever only looks."""

    def __init__(self, path: Path | None) -> None:
        self._words = None if path is None else Page(path, SIZE, KIND).words

    @classmethod
    def nothing(cls) -> "GateView":
        """A gate that nobody has come to."""
        return cls(None)

    @property
    def steps(self) -> int:
        """Training steps begun."""
        return 0 if self._words is None else self._words[_STEPS]
