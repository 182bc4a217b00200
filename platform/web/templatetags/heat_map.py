"""The blocks of the fleet's heat map: thousands on one page, so made without a template each."""

from django import template
from django.urls import reverse
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from telemetry.core.heat import Tile
from telemetry.core.wording import printable
from telemetry.queries.fleet import NodeHeat

register = template.Library()


@register.simple_tag
def heat_tile(tile: Tile) -> SafeString:
    """Return a node's drawing."""
    paths = "".join(f'<path class="{level}" d="{path}"></path>' for level, path in tile.paths)
    if tile.crosses:
        paths += f'<path class="cross" d="{tile.crosses}"></path>'
    box = f"0 0 {tile.columns} {tile.rows}"
    return mark_safe(f'<svg class="heat" viewBox="{box}" aria-hidden="true">{paths}</svg>')


@register.simple_tag
def heat_blocks(nodes: list[NodeHeat], named: bool) -> SafeString:
    """Return a link for every node with its drawing, and its name beneath where there is room."""
    pattern = reverse("fleet-node", args=["00000000-0000-0000-0000-000000000000"])
    return mark_safe("".join(_block(node, pattern, named) for node in nodes))


def _block(node: NodeHeat, pattern: str, named: bool) -> str:
    name = escape(printable(node.name))
    words = f"{name}, {len(node.devices)} device{'' if len(node.devices) == 1 else 's'}"
    if node.notable:
        words += f", {node.notable} to look at"
    address = pattern.replace("00000000-0000-0000-0000-000000000000", str(node.id))
    below = f'<span class="small cut" aria-hidden="true">{name}</span>' if named else ""
    return (
        f'<a class="heat-node" href="{address}" title="{words}"><span class="unseen">{words}</span>'
        f"{heat_tile(node.tile)}{below}</a>"
    )
