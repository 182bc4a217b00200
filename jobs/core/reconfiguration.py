"""What binds an approval to a plan."""

import hashlib
import json
from typing import Any


def plan_digest(epoch: int, before: dict[str, Any], plan: dict[str, Any]) -> str:
    """Return the SHA-256 of the canonical JSON of an epoch and of the layouts before and after.

    Two documents with the same meaning but different idle or dead devices differ: what is left out is part
    of the decision.
    """
    content = {"epoch": epoch, "before": before, "plan": plan}
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()
