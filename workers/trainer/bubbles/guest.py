"""The process of a guest: a device process that trains only while its gate is open.

    python -m workers.trainer.bubbles.guest --gate FILE --board FILE --pipe FD --core N --scheduling idle ...

It takes the orders of `workers.trainer.process` through its pipe. Before torch is loaded it puts itself into
the lowest class, offers itself first when memory runs out, and ties its life to its squeezer's.
"""

import argparse
import os
import signal
from multiprocessing.connection import Connection
from pathlib import Path

from workers.squeezer.gate import GuestGate
from workers.squeezer.processes import be_first_to_go, bind_to, die_with_parent, take_lowest_class


def arguments() -> argparse.Namespace:
    """What a squeezer says to its guest's program."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--gate", type=Path, required=True)
    parser.add_argument("--board", type=Path, required=True)
    parser.add_argument("--pipe", type=int, required=True)
    parser.add_argument("--core", type=int, default=-1)
    parser.add_argument("--scheduling", choices=("idle", "nice", "normal"), default="idle")
    parser.add_argument("--parent", type=int, required=True)
    return parser.parse_args()


def settle(told: argparse.Namespace) -> None:
    """Become a guest: what the system must know before any work is done."""
    die_with_parent(told.parent)
    be_first_to_go()
    bind_to(told.core)
    if told.scheduling == "idle":
        take_lowest_class()
    elif told.scheduling == "nice":
        os.nice(19)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def main() -> None:
    """Carry out orders until the pipe closes."""
    told = arguments()
    settle(told)
    from workers.trainer.bubbles.serving import serve

    serve(Connection(told.pipe), GuestGate(told.gate, told.board))


if __name__ == "__main__":
    main()
