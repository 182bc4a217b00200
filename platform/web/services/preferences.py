"""How a person likes pages to look."""

from collections.abc import Mapping

from cluster.models import User

# name -> values; the first one is what everybody starts with
KNOWN: dict[str, tuple[str, ...]] = {
    "theme": ("system", "light", "dark"),
    "clock": ("relative", "local", "utc"),
    "shortcuts": ("on", "off"),
}


def set_preferences(*, user: User, wanted: Mapping[str, str]) -> None:
    """Keep the known ones among the wanted preferences."""
    found = {name: wanted[name] for name, values in KNOWN.items() if wanted.get(name) in values}
    user.preferences = {**(user.preferences or {}), **found}
    user.save(update_fields=["preferences"])
