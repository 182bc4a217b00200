"""What the runs of a study decided about compiling their steps, for people."""

import json
from typing import Any

from jobs.models import Job
from tuning.core.study.compiling import same_graph

MOST = 3


def compile_sentences(job: Job) -> list[str]:
    """Return a sentence for each graph that was decided about last: the decision, its cost and its reason."""
    latest: list[dict[str, Any]] = []
    for decision in reversed(job.summary.get("compile") or ()):
        if not any(same_graph(decision, one) for one in latest):
            latest.append(decision)
    return [_sentence(decision) for decision in reversed(latest[:MOST])]


def _sentence(decision: dict[str, Any]) -> str:
    batch = json.loads(decision["shape"]).get("batch_size")
    seconds = decision.get("compile_s")
    cost = f" (measured, {seconds:.1f} s)" if seconds is not None else ""
    about = f"the {decision['model']} with batch size {batch} on {decision['device']}"
    return f"Compiling {about}{cost}: {decision['outcome']}, {decision['reason']}."
