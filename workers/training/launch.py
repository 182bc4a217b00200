"""From a job and its devices to ranks: which rank gets which device, and what the runtime is told."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.conf import settings

from cluster.models import Device
from jobs.models import Job, TrainingRun
from workers.trainer.parallel.fleet import Processes
from workers.trainer.parallel.spec import RunSpec
from workers.training.lending import lenders_of


def ranks_on(devices: Sequence[Device], ranks: int) -> list[dict[str, Any]]:
    """Return each rank's device; where ranks are more than devices, which are cores then, they take turns.

    Every other turn goes backwards: two replicas on a pair of cores then work in each other's bubbles.
    With both first stages on one core the second core would stand idle while they fill.
    """
    rows = []
    for rank in range(ranks):
        turn, place = divmod(rank, len(devices))
        device = devices[place if turn % 2 == 0 else len(devices) - 1 - place]
        rows.append(
            {
                "rank": rank,
                "id": str(device.pk),
                "label": str(device),
                "node": device.node.name,
                "index": device.index,
                "kind": device.kind,
                "memory_bytes": device.memory_bytes,
                "ray_node_id": device.node.facts.get("ray_node_id"),
            }
        )
    return rows


def run_spec(job: Job, run: TrainingRun) -> RunSpec:
    """Return what the ranks of a job are told; they go on from the last checkpoint in its folder."""
    spec = job.spec
    shape = spec["parameters"]
    return RunSpec(
        devices=tuple(f"r{row['rank']}" for row in run.devices),
        layout={"replicas": run.layout["replicas"]},
        folder=str(folder_of(job)),
        workload=spec["workload"],
        schedule=spec["schedule"],
        layers=shape["layers"],
        width=shape["width"],
        heads=shape["heads"],
        context=shape["context"],
        microbatches=spec["microbatches"],
        microbatch_tokens=shape["microbatch_tokens"],
        steps=spec["steps"],
        checkpoint_every=spec["checkpoint_every"],
        seed=spec["seed"],
        lr=spec["lr"],
        known_step=run.step,
    )


def folder_of(job: Job) -> Path:
    """Return where a job keeps its checkpoints."""
    folder = Path(settings.DATA_DIR) / "training" / str(job.pk)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def processes_for(devices: list[dict[str, Any]]) -> Processes:
    """Return where the ranks of these devices come from: actors of Ray."""
    # Ray is loaded only in a process that drives a job.
    from workers.training.ray_ranks import RayProcesses

    return RayProcesses(devices, lenders_of(devices))
