"""A guest without torch. Its last argument says how it behaves; see `BEHAVIOURS` in test_faults."""

import subprocess
import sys
import time

from workers.squeezer.gate import GuestGate
from workers.trainer.bubbles.guest import arguments, settle

BEHAVIOUR = sys.argv.pop()
STEP_S = 0.001


def burn(seconds: float) -> None:
    ends = time.process_time() + seconds
    while time.process_time() < ends:
        pass


def main() -> None:
    told = arguments()
    settle(told)
    gate = GuestGate(told.gate, told.board)
    held = []
    gate.point()
    if BEHAVIOUR == "forks":
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    while True:
        for _ in range(60 if BEHAVIOUR == "strides" else 0):
            burn(STEP_S)
            gate.point()
        burn(STEP_S)
        if BEHAVIOUR == "ignores" or (BEHAVIOUR == "spins" and gate.steps > 50):
            continue
        gate.step()
        if BEHAVIOUR == "crashes" and gate.steps > 50:
            raise SystemExit(3)
        if BEHAVIOUR == "leaks":
            held.append(bytearray(2**20))


main()
