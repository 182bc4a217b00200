"""Numbers, spans and foreign text as people read them, the same in pages, figures and exports."""

import math
import re
import unicodedata
from typing import Any

# Terminal colours and cursor moves (ECMA-48), before the characters they are made of are dropped.
ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
KEPT = {"\n", "\t"}
# Cc control, Cf format (bidirectional overrides and zero-width among them), Cs surrogates, Co private use.
HIDDEN = {"Cc", "Cf", "Cs", "Co"}


def number_text(value: Any, digits: int = 5) -> str:
    """Return a number with so many significant digits; zero is `0`, what is not finite says so."""
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return printable(str(value))
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if isinstance(value, int):
        return f"{value:,}".replace(",", "\u202f") if abs(value) >= 10_000 else str(value)
    text = f"{value:.{digits}g}"
    if "e" in text:
        mantissa, exponent = text.split("e")
        return f"{mantissa}e{int(exponent)}".replace("-", "−")
    return text.replace("-", "−")


def duration_text(seconds: float | None) -> str:
    """Return a span in its two largest units: `0.42 s`, `12.3 s`, `3 min 4 s`, `2 h 5 min`, `4 d 2 h`."""
    if seconds is None or not math.isfinite(seconds):
        return "–"
    if seconds < 0:
        return f"−{duration_text(-seconds)}"
    if seconds < 9.995:
        return f"{seconds:.2f} s" if seconds else "0 s"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for unit, name, part, part_name in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= unit:
            rest = whole % unit // part
            return f"{whole // unit} {name} {rest} {part_name}" if rest else f"{whole // unit} {name}"
    return f"{whole} s"


def bytes_text(count: float | None) -> str:
    """Return a size in binary units."""
    if count is None:
        return "–"
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.3g} TiB"


def printable(text: str) -> str:
    """Return foreign text without colours, control and bidirectional characters; lines and tabs stay."""
    plain = ANSI.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return "".join(c for c in plain if c in KEPT or unicodedata.category(c) not in HIDDEN)


def plotly_text(text: Any, longest: int = 80) -> str:
    """Return foreign text for a Plotly label, which would read tags and entities as markup."""
    plain = printable(str(text)).replace("\n", " ")
    if len(plain) > longest:
        plain = f"{plain[: longest - 1]}…"
    return plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
