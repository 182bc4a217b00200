"""Three first jobs, so that the first page is alive and shows what is special here. Safe to run again.

A study on whatever is free; then a training job that holds both cores, and a study that has no device and
lives in its bubbles. The training job is of a lower class: whoever submits something gets the cores at once.
"""

from typing import Any

from django.core.management.base import BaseCommand
from django.db import transaction

from cluster.models import Team, User
from jobs.core.body import parse_body
from jobs.core.errors import InvalidSpec
from jobs.models import Job
from jobs.services.submission import submit_job
from tuning.models import Workload
from web.services.first_admin import first_admin

WORKLOAD = "digits-mlp"
STUDY = {
    "kind": "study",
    "name": "Welcome: handwritten digits",
    "spec": {
        "workload": WORKLOAD,
        "trials": 30,
        "epochs": 20,
        "scheduler": {"name": "asha", "grace": 3, "reduction": 3},
        "scaling": 8,
        "top_k": 3,
    },
    "objective": {"at_least": 0.95},
}
# Two micro-batches on two stages leave a third of both cores idle, in bubbles long enough for many steps.
TRAINING = {
    "kind": "training",
    "name": "Welcome: a small GPT on two devices",
    "spec": {
        "workload": "pydoc-gpt",
        "layout": {"replicas": [{"stages": [{"layers": 2}, {"layers": 2}], "microbatches": 2}]},
        "parameters": {"width": 128, "microbatch_tokens": 1024},
        "steps": 800,
        "checkpoint_every": 50,
        "lend_limit": 0.05,  # on a machine that does other things as well, 2 % are soon measured
        "class": -1,
        "min_runtime_s": 0,
    },
}
IN_BUBBLES = {
    "kind": "study",
    "name": "Welcome: in the bubbles of the GPT",
    "spec": {
        "workload": WORKLOAD,
        "trials": 12,
        "epochs": 6,
        "scheduler": {"name": "asha", "grace": 2, "reduction": 3},
        "scaling": 8,
        "top_k": 1,
        "bubbles": "only",
        "seed": 1,
    },
}


class Command(BaseCommand):
    help = "Submit the demo's jobs, unless this installation already has jobs."

    def handle(self, *args: Any, **options: Any) -> None:
        admin = first_admin()
        if not Workload.objects.filter(name=WORKLOAD, is_available=True).exists():
            self.stderr.write(f"the demo needs the workload {WORKLOAD}: run sync_workloads first")
            return
        self.stdout.write("submitted" if submit_demo(admin) else "there are jobs already; nothing to do")


@transaction.atomic
def submit_demo(admin: User) -> bool:
    """Submit the demo to the oldest team if its jobs would be the first; return whether they were."""
    team = Team.objects.select_for_update().order_by("created_at").first()
    if team is None or Job.objects.exists():
        return False
    submit_job(body=parse_body(STUDY), team=team, owner=admin, actor="demo")
    try:
        with transaction.atomic():
            submit_job(body=parse_body(TRAINING), team=team, owner=admin, actor="demo")
            submit_job(body=parse_body(IN_BUBBLES), team=team, owner=admin, actor="demo")
    except InvalidSpec:
        return True  # devices on which this layout cannot run, one GPU for instance; the study is enough
    return True
