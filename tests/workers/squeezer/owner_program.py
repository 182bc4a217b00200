"""An owner of a board: works and waits in turns. `owner_program.py BOARD [die|forget|change|""] [DEVICE]`."""

import os
import sys
import time

from workers.squeezer.lender import Lender

WORK_S, BUBBLE_S = 0.005, 0.03


def main() -> None:
    lender = Lender(sys.argv[1], device=int(sys.argv[3]) if len(sys.argv) > 3 else -1)
    fault = sys.argv[2] if len(sys.argv) > 2 else ""
    iteration = 0
    while True:
        iteration += 1
        ends = time.monotonic() + WORK_S
        while time.monotonic() < ends:
            pass
        if fault == "forget" and iteration == 30:
            lender.on_bubble_enter(0)
            while True:  # works on, without ever saying that the bubble is over
                time.sleep(0.01)
        if fault == "change" and iteration % 20 == 0:
            lender.begin_epoch(iteration // 20)
        with lender.bubble(0):
            time.sleep(BUBBLE_S)
            # not before there is a guest, however long that takes to come
            if fault == "die" and iteration >= 30 and lender._board.guests:
                os._exit(1)
        print(iteration, flush=True)


main()
