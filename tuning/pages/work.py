"""What runs on the devices now, as parts of the devices page."""

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from cluster.queries import teams_of
from jobs.core.states import JobState
from tuning.models import Container


@login_required
@require_safe
def device_work(request: HttpRequest) -> HttpResponse:
    """Return what runs on each device; studies of other teams are counted, not named."""
    mine = set(teams_of(request.user).values_list("pk", flat=True))
    rows = Container.objects.filter(end_s__isnull=True, device__isnull=False, job__state=JobState.RUNNING)
    work: dict[object, list[tuple[Container, bool]]] = {}
    for container in rows.select_related("job"):
        work.setdefault(container.device_id, []).append((container, container.job.team_id in mine))
    return render(request, "tuning/device_work.html", {"work": work.items()})
