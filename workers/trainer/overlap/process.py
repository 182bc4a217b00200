"""`python -m workers.trainer.overlap.process ANSWER SECONDS`: one study; the request is on standard input."""

import contextlib
import json
import math
import resource
import sys
import warnings
from pathlib import Path
from typing import Any

from jobs.core.overlap.errors import OverBudget, ProgramRefused, UnknownCluster

_MEMORY_BYTES = 24 << 30
_FILE_BYTES = 1 << 30


def _limit(seconds: int) -> None:
    """Processor time, address space, file size; whichever the system allows."""
    limits = {
        resource.RLIMIT_CPU: seconds * 4,
        resource.RLIMIT_AS: _MEMORY_BYTES,
        resource.RLIMIT_FSIZE: _FILE_BYTES,
        resource.RLIMIT_CORE: 0,
    }
    for kind, value in limits.items():
        hard = resource.getrlimit(kind)[1]
        allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(kind, (allowed, allowed))


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    from workers.trainer.overlap.ranks import RanksDisagree
    from workers.trainer.overlap.study import Request, run_study

    try:
        return run_study(Request(**{**request, "slowdown": tuple(request.get("slowdown", (0.0, 0.0)))}))
    except (ProgramRefused, UnknownCluster, RanksDisagree) as error:
        return {"refused": str(error)}
    except OverBudget as error:
        return {"error": str(error), "smallest_peak_bytes": error.smallest_peak_bytes}


def strict(value: Any) -> Any:
    """Numbers that JSON cannot hold as null."""
    if isinstance(value, dict):
        return {key: strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def main(arguments: list[str]) -> int:
    """Write the answer and return 0; anything unforeseen is a traceback and 1."""
    path, seconds = Path(arguments[0]), int(arguments[1])
    request = json.load(sys.stdin)
    _limit(seconds)
    warnings.simplefilter("ignore")
    if "" not in sys.path:
        sys.path.insert(0, "")
    path.write_text(json.dumps(strict(_answer(request)), allow_nan=False), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
