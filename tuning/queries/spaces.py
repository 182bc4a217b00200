"""The space a study really searches: the workload's own, with the study's entries in place."""

from collections.abc import Mapping
from typing import Any

from jobs.models import Job
from tuning.models import Workload

Entries = dict[str, dict[str, Any]]


def space_of(job: Job) -> Entries:
    """Return the entries of a study's space by name; what is left of it where the workload is gone."""
    own = Workload.objects.filter(pk=job.study.workload).values_list("description", flat=True).first()
    return {**declared_space_of(own or {}), **(job.spec.get("space") or {})}


def declared_space_of(description: Mapping[str, Any]) -> Entries:
    """Return a workload's space in the order in which it was declared, which the database does not keep."""
    space: Entries = description.get("space") or {}
    names = [row["name"] for row in description.get("form") or [] if row["name"] in space]
    return {name: space[name] for name in [*names, *(n for n in space if n not in names)]}
