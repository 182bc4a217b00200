"""CSV tables with a header: opened, renamed and checked cell by cell."""

import csv
import gzip
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from cluster.core.errors import TraceError

# Far above any cluster or trace, far below where float64 stops counting every integer.
LARGEST_COUNT = 10**9
LARGEST_SECONDS = 1e12


def open_rows(path: Path) -> tuple[list[str], list[list[str]]]:
    """Return (header, rows) of a CSV file, unpacked first where it is gzip.

    Raises:
        TraceError: the file cannot be read, is not text or has no header.
    """
    try:
        raw = path.read_bytes()
        if raw[:2] == b"\x1f\x8b":
            raw = gzip.decompress(raw)
        table = list(csv.reader(io.StringIO(raw.decode("utf-8-sig"), newline="")))
    except (OSError, EOFError) as error:
        raise TraceError("file", f"{path} cannot be read ({error})") from None
    except (UnicodeDecodeError, csv.Error):
        raise TraceError("file", f"{path} is not a CSV text in UTF-8") from None
    except Exception as error:  # zlib.error has no common parent with the others
        raise TraceError("file", f"{path} cannot be unpacked ({error})") from None
    rows = [row for row in table if any(cell.strip() for cell in row)]
    if not rows:
        raise TraceError("file", f"{path} is empty; a header row is needed")
    return [name.strip() for name in rows[0]], rows[1:]


def rename_columns(header: Sequence[str], renames: Mapping[str, str]) -> list[str]:
    """Return the header with the file's names replaced by ours; `renames` maps ours to the file's.

    Raises:
        TraceError: a renamed column is not in the file.
    """
    for ours, theirs in renames.items():
        if theirs not in header:
            raise TraceError(ours, f"the file has no column {theirs!r}; it has {', '.join(header)}")
    new_names = {theirs: ours for ours, theirs in renames.items()}
    # A column that another one replaces keeps out of the way.
    return [new_names.get(name, f"({name})" if name in renames else name) for name in header]


def column_index(header: Sequence[str], name: str, *, required: bool = True) -> int:
    """Return where a column stands, or -1 for an absent optional one."""
    if header.count(name) > 1:
        raise TraceError(name, "the column occurs more than once")
    if name in header:
        return header.index(name)
    if required:
        raise TraceError(name, f"the column is missing; the file has {', '.join(header)}")
    return -1


def cell(row: Sequence[str], index: int) -> str:
    """Return a cell's text; empty for an absent column or a short row."""
    return row[index].strip() if 0 <= index < len(row) else ""


def read_seconds(text: str, field: str, row: int) -> float:
    """Return a finite number that is not negative."""
    try:
        value = float(text)
    except ValueError:
        rule = "a value is needed" if not text else f"{text!r} is not a number"
        raise TraceError(field, rule, row) from None
    if not math.isfinite(value):
        raise TraceError(field, f"{text!r} is not a finite number", row)
    if value < 0:
        raise TraceError(field, f"{text!r} is negative", row)
    if value > LARGEST_SECONDS:
        raise TraceError(field, f"{text!r} is beyond {LARGEST_SECONDS:g}", row)
    return value


def read_count(text: str, field: str, row: int) -> int:
    """Return a whole number from 0 on; `4.0` counts as 4."""
    if text.isdecimal() and len(text) <= 10:
        value = int(text)
    else:
        number = read_seconds(text, field, row)
        if number != int(number):
            raise TraceError(field, f"{text!r} is a fraction; whole devices are asked for", row)
        value = int(number)
    if value > LARGEST_COUNT:
        raise TraceError(field, f"{text!r} is beyond {LARGEST_COUNT}", row)
    return value
