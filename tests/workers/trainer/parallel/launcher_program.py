"""Starts a run and says the process numbers of its ranks; a test kills it."""

import json
import sys
import time

from workers.trainer.parallel.fleet import Fleet
from workers.trainer.parallel.local import LocalProcesses
from workers.trainer.parallel.spec import RunSpec


def main() -> None:
    fleet = Fleet(RunSpec.from_json(json.loads(sys.argv[1])), LocalProcesses())
    fleet.start()
    told = False
    while True:
        events = fleet.poll()
        if not told and any(event["kind"] == "iteration" for event in events):
            print(json.dumps(list(fleet.pids().values())), flush=True)
            told = True
        time.sleep(0.05)


if __name__ == "__main__":
    main()
