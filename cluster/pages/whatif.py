"""What if: policies compared on the live queue or on a trace. Nothing is changed."""

import tempfile
from pathlib import Path
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_http_methods

from cluster.core.bodies import MOST_POLICIES, PreviewBody
from cluster.core.errors import ClusterError, TraceError
from cluster.core.policies import LIVE, ORDERED
from cluster.core.simulator.whatif import compare_policies
from cluster.core.states import ClusterName
from cluster.core.traces.jobs import read_jobs
from cluster.core.traces.nodes import even_nodes
from cluster.models import Node
from cluster.pages.plays import play_row, with_strips
from cluster.pages.queue import POLICIES, cluster_shown, common, require_operator
from cluster.services.previews import preview
from cluster.services.queue import coordinator_of

MOST_TRACE_BYTES = 900_000
MOST_TRACE_JOBS = 5000
MOST_TRACE_DEVICES = 100_000
MOST_NODES = 200
USUAL = ("fifo-skip", "fair", "las")


@login_required
@require_http_methods(["GET", "POST"])
def what_if(request: HttpRequest) -> HttpResponse:
    """Ask which policies to compare, on what; answer with their figures and distributions."""
    require_operator(request)
    name = cluster_shown(request)
    chosen = [policy for policy in request.POST.getlist("policies") if policy in LIVE]
    nodes = Node.objects.filter(is_simulated=name is ClusterName.REHEARSAL).order_by("name")
    context = common(request, "what-if") | {
        "policies": POLICIES,
        "chosen": chosen or [coordinator_of(name).policy, *USUAL][:3],
        "present": coordinator_of(name).policy,
        "nodes": nodes[:MOST_NODES],
        "without": request.POST.getlist("without"),
        "devices": request.POST.get("devices", "64"),
        "most": MOST_POLICIES,
    }
    if request.method == "POST":
        try:
            context |= _compare(request, name, chosen[:MOST_POLICIES])
        except ClusterError as error:
            context["error"] = str(error)
    part = request.headers.get("HX-Target") == "compared"
    return render(request, "cluster/what_if_result.html" if part else "cluster/what_if.html", context)


def _compare(request: HttpRequest, name: ClusterName, chosen: list[str]) -> dict[str, Any]:
    if not chosen:
        raise TraceError("policies", "choose at least one")
    if request.POST.get("source") == "trace":
        return _on_trace(request, chosen)
    body = PreviewBody(tuple(chosen), without_nodes=tuple(request.POST.getlist("without")))
    plays = preview(name, body)
    rows = [play_row(f"{plays.policy}, as it is", plays.before)]
    rows += [play_row(str(play["policy"]), play) for play in plays.after]
    return {"rows": with_strips(rows), "left_out": plays.left_out, "source": "queue"}


def _on_trace(request: HttpRequest, chosen: list[str]) -> dict[str, Any]:
    unknown = [policy for policy in chosen if policy not in ORDERED]
    if unknown:
        rule = (
            f"{unknown[0]} weighs what a trace does not tell: compare it on the live queue, or on a rehearsal"
        )
        raise TraceError("policies", rule)
    text = request.POST.get("devices", "")
    if not text.isdigit() or not 1 <= int(text) <= MOST_TRACE_DEVICES:
        raise TraceError("devices", f"must be a whole number from 1 to {MOST_TRACE_DEVICES}")
    upload = request.FILES.get("trace")
    if upload is None or upload.size is None or upload.size > MOST_TRACE_BYTES:
        raise TraceError("trace", f"choose a CSV file of at most {MOST_TRACE_BYTES // 1000} kB, gzip allowed")
    with tempfile.NamedTemporaryFile(suffix=".csv") as file:
        file.write(upload.read())
        file.flush()
        try:
            jobs = read_jobs(Path(file.name))
        except TraceError as error:
            raise TraceError(error.field, str(error).replace(file.name, "the file"), error.row) from None
    if len(jobs) > MOST_TRACE_JOBS:
        raise TraceError("trace", f"has {len(jobs)} jobs; here at most {MOST_TRACE_JOBS} are simulated")
    rows = []
    for result in compare_policies(jobs, even_nodes(int(text)), chosen):
        rows.append(
            {
                "name": result["policy"],
                "mean_wait_s": result["avg_queue_s"],
                "mean_jct_s": result["avg_jct_s"],
                "makespan_s": result["makespan_s"],
                "evictions": result["preemptions"],
                "started": result["completed"],
                "stranded": result["refused"],
                "utilisation": result["gpu_utilisation"],
                "fairness": result["fairness"]["jain"],
                "wait": result["queue_s"],
                "jct": result["jct_s"],
            }
        )
    return {"rows": with_strips(rows), "left_out": 0, "source": "trace", "trace_jobs": len(jobs)}
