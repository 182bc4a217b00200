"""`python -m workers.trainer.describe [NAME]`: every workload as JSON, for a web process that runs no models.

Loads no PyTorch unless a workload's own module does.
"""

import json
import sys
from typing import Any

from tuning.core.errors import TuningError
from tuning.core.space import form_fields
from tuning.core.workload import FunctionWorkload, Workload, check_workload
from workers.trainer.loading import load_workload, registered


def describe(reference: str) -> dict[str, Any]:
    """Return one workload as plain data; one that cannot be loaded has `error` and nothing else."""
    try:
        workload = load_workload(reference)
        return _document(reference, workload)
    except TuningError as error:
        return {"name": reference, "error": str(error)}


def describe_all() -> list[dict[str, Any]]:
    """Return every registered workload by name, broken ones with their error."""
    return [describe(name) for name in sorted(registered())]


def _document(reference: str, workload: Workload) -> dict[str, Any]:
    space = check_workload(workload)
    dataset = workload.dataset
    return {
        "name": reference,
        "kind": "function" if isinstance(workload, FunctionWorkload) else "class",
        "description": workload.description or (workload.__doc__ or "").strip().split("\n")[0],
        "space": space.to_json(),
        "form": form_fields(space),
        "metric": workload.metric,
        "mode": workload.mode,
        "epochs": workload.epochs,
        "batch_size": workload.batch_size,
        "parameters": {
            name: {**distribution.to_json(), "default": getattr(workload, name)}
            for name, distribution in workload.parameters.items()
        },
        "samples": dataset.samples if dataset else None,
        "dataset": dataset.to_json() if dataset else None,
        "transfers": {name: name not in workload.not_transferable for name in space.names},
        "error": None,
    }


def main(arguments: list[str]) -> int:
    """Print the JSON; exit code 1 where a named workload cannot be loaded."""
    workloads = [describe(name) for name in arguments] if arguments else describe_all()
    print(json.dumps({"workloads": workloads}, allow_nan=False))
    return int(bool(arguments) and any(workload["error"] for workload in workloads))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
