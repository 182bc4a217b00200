"""The control loop of one lent device: who runs in the present bubble, and that nobody runs after it."""

import threading
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from cluster.core.coordinator import GuestProfile, Slot, SlotDecision, choose_guest, is_control
from workers.squeezer.board import Announcement, Board
from workers.squeezer.gate import CLOSED, FREE, NEVER_NS
from workers.squeezer.guests import Guest
from workers.squeezer.processes import lives
from workers.squeezer.rules import Rules

TICK_S = 0.1
KEPT = 512


@dataclass
class Skipped:
    """Bubbles of one slot that nobody got, and why."""

    slot: int
    rule: str
    count: int = 0
    reason: str = ""


class Stage:
    """Serves one board in a thread of its own. `lock` guards the guests."""

    def __init__(self, path: Path, rules: Rules) -> None:
        self.path, self.board, self.rules = path, Board(path), rules
        self.lock = threading.Lock()
        self.guests: dict[str, Guest] = {}
        self.lending = True
        self.skipped: dict[tuple[int, str], Skipped] = {}
        self.enforced = self.in_pieces = self.granted_ns = 0
        self.pauses_ns: deque[int] = deque(maxlen=KEPT)
        self.resumes_ns: deque[int] = deque(maxlen=KEPT)
        self._leaving = threading.Event()
        self._running: Guest | None = None
        self._present: Announcement | None = None
        self._decided = 0
        self._period_s = 0.0
        self._first_round: int | None = None
        self._round_began: tuple[int, int] = (0, 0)
        self._thread = threading.Thread(target=self._run, name=f"stage {path.name}", daemon=True)

    def start(self) -> None:
        """Begin to serve."""
        self.board.listen(True)
        self._thread.start()

    def leave(self) -> None:
        """End the loop; guests stay as they are."""
        self._leaving.set()
        self._thread.join()
        self.board.listen(False)

    def owner_lives(self) -> bool:
        """Whether bubbles can still come."""
        return not self.board.closed and lives(*self.board.owner)

    def add(self, guest: Guest) -> None:
        """Let a guest have bubbles."""
        with self.lock:
            self.guests[guest.name] = guest
            self._count()
            self._hold_or_free(guest)

    def remove(self, guest: Guest) -> None:
        """Give a guest no more bubbles."""
        with self.lock:
            self.guests.pop(guest.name, None)
            if self._running is guest:
                self._running = None
            self._count()

    def follow(self, rules: Rules) -> None:
        """Go by other rules from now on."""
        with self.lock:
            self._revoke_all()
            self.rules = rules
            for guest in self.guests.values():
                self._hold_or_free(guest)

    def hold(self, guest: Guest, held: bool) -> None:
        """Keep one guest out of every bubble, or let it in again."""
        with self.lock:
            guest.held = held
            if self._running is guest:
                self._running = None
            self._hold_or_free(guest)

    def lend(self, lending: bool) -> None:
        """Switch lending on or off; off holds every guest at once."""
        with self.lock:
            self.lending = lending
            if not lending:
                self._revoke_all()
                return
            for guest in self.guests.values():
                self._hold_or_free(guest)

    def _count(self) -> None:
        self.board.count([guest.pid for guest in self.guests.values()])

    def _hold_or_free(self, guest: Guest) -> None:
        """Put a guest where it waits for its next bubble, or set it free where bubbles do not bind it."""
        wanted = self.lending and not guest.held
        free = not self.rules.bounded or not self.rules.hooks
        guest.gate.permit(FREE if free and wanted else CLOSED)
        if not wanted or (self.rules.bounded and self.rules.signals):
            guest.stop()
        else:
            guest.go_on()

    def _revoke_all(self) -> None:
        for guest in self.guests.values():
            guest.gate.permit(CLOSED)
            if not guest.paused:
                guest.stop()
        self._running = None

    def _run(self) -> None:
        while not self._leaving.is_set():
            turn = self.board.turn
            with self.lock:
                if turn % 2 == 0:
                    self._close()
                elif turn != self._decided:
                    self._close()
                    self._open()
                else:
                    self._look_after()
            self.board.await_turn(turn, TICK_S)

    def _open(self) -> None:
        present = self.board.read()
        if present is None:
            return
        self._decided, self._present = present.turn, present
        if self._first_round is None and self.guests:
            self._first_round = present.round
        self._note_period(present)
        if not self.rules.bounded:
            return
        if not self.lending:
            self._skip(present, "stopped", "lending is stopped")
            return
        if self.is_control(present.round):
            self._skip(present, "control", "left alone, to measure the slowdown")
            return
        choice = self._choose(present)
        if choice.guest is None:
            self._skip(present, choice.rule, choice.reason)
            return
        guest = self.guests[choice.guest]
        if choice.rule == "pieces":
            self.in_pieces += 1
        else:
            guest.fitted_s = time.monotonic()
        self._grant(guest, present)

    def is_control(self, number: int) -> bool:
        """Whether an iteration is left alone, to compare others with it."""
        every = self.rules.control_every
        return bool(every) and is_control(number, every, self._first_round)

    def _skip(self, present: Announcement, rule: str, reason: str) -> None:
        """Count a bubble that nobody gets, and keep why, with the numbers of the latest."""
        for name in self.guests:
            reason = reason.removeprefix(f"{name}: ")
        skipped = self.skipped.setdefault((present.slot, rule), Skipped(present.slot, rule))
        skipped.count, skipped.reason = skipped.count + 1, reason

    def _choose(self, present: Announcement) -> SlotDecision:
        guests = [guest for guest in self.guests.values() if not guest.held and not guest.idle]
        starting = [guest for guest in guests if guest.starting]
        if starting:
            return SlotDecision(starting[0].name, "it starts")
        if not self.rules.fits:
            return SlotDecision(guests[0].name if guests else None, "whoever is there")
        resident, now_s = {guest.name: guest.resident_bytes() for guest in guests}, time.monotonic()
        profiles = [
            GuestProfile(
                guest.name,
                guest.size,
                guest.step_s(),
                max(guest.order.held_bytes, resident[guest.name]),
                guest.granted_ns / 1e9,
                now_s - guest.fitted_s,
            )
            for guest in guests
        ]
        slot = Slot(
            present.slot,
            present.expected_ns / 1e9,
            self._period_s,
            present.free_bytes + sum(resident.values()),
        )
        elapsed_s = (time.monotonic_ns() - present.entered_ns) / 1e9
        return choose_guest(slot, profiles, elapsed_s, preemptible=self.rules.preemptible)

    def _grant(self, guest: Guest, present: Announcement) -> None:
        rules, until_ns = self.rules, NEVER_NS
        if not rules.preemptible:
            until_ns = present.entered_ns + present.expected_ns - int(rules.guard_s * 1e9)
        if rules.hooks:
            guest.gate.permit(present.turn, until_ns)
        guest.go_on()
        self._running = guest

    def _close(self) -> None:
        """See to it that whoever had the last bubble runs no more."""
        guest, present = self._running, self._present
        if guest is None or present is None:
            return
        left_ns = self._note_run(guest, present)
        self._running = None
        if not self.rules.signals:
            return
        # in the lowest class it has lost the core already, and would get no turn in which to pause
        grace_s = 0.0 if guest.in_lowest_class() else self.rules.grace_s
        if self.rules.hooks and not guest.starting and guest.gate.await_pause(grace_s):
            self.pauses_ns.append(max(0, guest.gate.asked_ns - left_ns))
            return
        guest.stop()
        self.enforced += 1

    def _note_run(self, guest: Guest, present: Announcement) -> int:
        """Book the bubble that is over; returns when it ended, as nearly as is known here."""
        now_ns = time.monotonic_ns()
        guest.granted_ns += now_ns - present.entered_ns
        self.granted_ns += now_ns - present.entered_ns
        resumed_ns = guest.gate.resumed_ns
        if resumed_ns > present.entered_ns:
            self.resumes_ns.append(resumed_ns - present.entered_ns)
        return now_ns

    def _look_after(self) -> None:
        """A bubble that lasts much longer than any before it may be one whose end was not announced."""
        present, guest = self._present, self._running
        if present is None or guest is None:
            return
        longest_s = max(self.rules.outstayed * present.expected_ns / 1e9, self.rules.outstayed_s)
        if (time.monotonic_ns() - present.entered_ns) / 1e9 > longest_s:
            guest.gate.permit(CLOSED)
            self._close()
            self._skip(present, "outstayed", "its end was not announced in time")

    def _note_period(self, present: Announcement) -> None:
        number, began_ns = self._round_began
        if present.round != number:
            if began_ns and present.round > number:
                self._period_s = (present.entered_ns - began_ns) / 1e9 / (present.round - number)
            self._round_began = (present.round, present.entered_ns)
