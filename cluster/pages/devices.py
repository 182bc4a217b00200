"""The devices page: nodes, their devices, and taking a device out of use or back."""

from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from cluster.core.errors import IllegalDeviceMove
from cluster.core.roles import Permission, allows
from cluster.core.states import DEVICE_LOOK, DeviceState, can_move
from cluster.models import Device, Node
from cluster.queries import highest_role
from cluster.services.devices import FLEET, move_device, move_node
from journal.queries import window_of

ACTIONS = {
    "cordon": (DeviceState.CORDONED, "Cordon", "What runs goes on, nothing new is placed."),
    "drain": (DeviceState.DRAINING, "Drain", "What runs is moved away, nothing new is placed."),
    "uncordon": (DeviceState.HEALTHY, "Uncordon", "The device is used again."),
}
REASON_LENGTH = 300


@login_required
@require_safe
def devices(request: HttpRequest) -> HttpResponse:
    """Show every device by node; to htmx, only the nodes."""
    seq = window_of(FLEET).last_seq
    state = request.GET.get("state", "")
    nodes = list(Node.objects.prefetch_related("devices").order_by("name"))
    rows = [(node, [d for d in node.devices.all() if not state or d.state == state]) for node in nodes]
    counts = dict.fromkeys(DeviceState, 0)
    for node in nodes:
        for device in node.devices.all():
            counts[DeviceState(device.state)] += 1
    context = {
        "section": "devices",
        "nodes": [(node, [_row(d) for d in found]) for node, found in rows if found or not state],
        "states": [(s.value, DEVICE_LOOK[s][0], counts[s]) for s in DeviceState],
        "total": sum(counts.values()),
        "state": state,
        "node_actions": [(name, *ACTIONS[name][1:]) for name in ACTIONS],
        "may_operate": allows(highest_role(request.user), Permission.OPERATE),
        "seq": seq,
        "now": timezone.now(),
    }
    part = request.headers.get("HX-Target") == "nodes"
    return render(request, "cluster/nodes.html" if part else "cluster/devices.html", context)


def _row(device: Device) -> dict[str, object]:
    state = DeviceState(device.state)
    wanted = {
        DeviceState.HEALTHY: ("cordon", "drain"),
        DeviceState.SUSPECT: ("cordon", "drain", "uncordon"),
        DeviceState.CORDONED: ("uncordon", "drain"),
        DeviceState.DRAINING: ("uncordon", "cordon"),
        DeviceState.LOST: ("cordon",),
    }[state]
    actions = [(name, *ACTIONS[name][1:]) for name in wanted if can_move(state, ACTIONS[name][0])]
    return {"device": device, "actions": actions}


@login_required
@require_POST
def move(request: HttpRequest, device_id: UUID, action: str) -> HttpResponse:
    """Cordon, drain or uncordon a device, with a reason that others can read."""
    if not allows(highest_role(request.user), Permission.OPERATE):
        raise PermissionDenied("Only operators may change devices.")
    if action not in ACTIONS:
        raise Http404(f"There is no action {action}.")
    reason = " ".join(request.POST.get("reason", "").split())[:REASON_LENGTH]
    if action != "uncordon" and not reason:
        messages.error(request, "Not done: say why, so that the next person knows.")
        return redirect("devices")
    try:
        device = move_device(
            device_id=device_id, to=ACTIONS[action][0], actor=request.user.get_username(), reason=reason
        )
    except Device.DoesNotExist:
        raise Http404("There is no such device.") from None
    except IllegalDeviceMove as error:
        messages.error(request, f"Not done: {error}.")
    else:
        messages.success(request, f"{device} is {device.state} now.")
    return redirect("devices")


@login_required
@require_POST
def move_all(request: HttpRequest, node_id: UUID, action: str) -> HttpResponse:
    """Cordon, drain or uncordon all devices of a node, with a reason that others can read."""
    if not allows(highest_role(request.user), Permission.OPERATE):
        raise PermissionDenied("Only operators may change devices.")
    node = Node.objects.filter(pk=node_id).first()
    if action not in ACTIONS or node is None:
        raise Http404("There is no such node or action.")
    reason = " ".join(request.POST.get("reason", "").split())[:REASON_LENGTH]
    if action != "uncordon" and not reason:
        messages.error(request, "Not done: say why, so that the next person knows.")
        return redirect("devices")
    state = ACTIONS[action][0]
    moved = move_node(node_id=node_id, to=state, actor=request.user.get_username(), reason=reason)
    messages.success(request, f"{moved} device{'' if moved == 1 else 's'} of {node.name} now {state}.")
    return redirect("devices")
