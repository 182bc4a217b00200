"""The named colours of charts, as in frontend/static/css/tokens.css, for both themes."""

from typing import Any

Figure = dict[str, Any]

# name -> (light, dark)
_COLOURS = {
    "c1": ("#1c53c4", "#7ea5ff"),
    "c2": ("#c2470a", "#ff8f63"),
    "c3": ("#0a7a61", "#41c9a3"),
    "c4": ("#97478a", "#dc9fd0"),
    "c5": ("#8a6000", "#e6b440"),
    "c6": ("#22789f", "#5fc3ea"),
    "c7": ("#5c6473", "#9aa3b2"),
    "faint": ("#b9c0cc", "#4a5363"),
    "grid": ("#e9ecf1", "#222832"),
    "surface": ("#ffffff", "#13171d"),
    "text": ("#161a22", "#e8ebf1"),
}
PALETTES: dict[str, dict[str, str]] = {
    "light": {name: pair[0] for name, pair in _COLOURS.items()},
    "dark": {name: pair[1] for name, pair in _COLOURS.items()},
}
SERIES = ("$c1", "$c2", "$c3", "$c4", "$c5", "$c6")


def paint(figure: Any, theme: str = "light") -> Any:
    """Return the figure with every named colour replaced by the theme's."""
    palette = PALETTES[theme]
    if isinstance(figure, dict):
        return {key: paint(value, theme) for key, value in figure.items()}
    if isinstance(figure, list):
        return [paint(value, theme) for value in figure]
    if isinstance(figure, str) and figure.startswith("$") and figure[1:] in palette:
        return palette[figure[1:]]
    return figure
