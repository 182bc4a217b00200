"""Names of the built-in programs, for processes that load no PyTorch; the trainer has the programs."""

import re
from collections.abc import Mapping
from typing import Any

_REFERENCE = re.compile(r"[A-Za-z_][\w.]{0,199}:[A-Za-z_]\w{0,99}")
_KINDS = {
    "tp-transformer": "tensor parallel transformer (all-reduce)",
    "tp-sp-transformer": "tensor parallel with sequence parallel regions (all-gather, reduce-scatter)",
    "ulysses-transformer": "sequence parallel by heads, Ulysses (all-to-all)",
    "ring-transformer": "sequence parallel by ring attention (neighbours)",
    "moe-transformer": "expert parallel mixture of experts (all-to-all)",
}
INFERENCE = "-inference"

BUILT_IN_PROGRAMS = {
    **{name: f"{about}; training step" for name, about in _KINDS.items()},
    **{f"{name}{INFERENCE}": f"{about}; inference, long sequences" for name, about in _KINDS.items()},
}

# Largest values of a built-in program's size; a graph of more layers only repeats itself.
SIZE_LIMITS = {
    "ranks": 1024, "batch": 65_536, "tokens": 1 << 24, "width": 1 << 17, "heads": 1024, "hidden": 1 << 19,
    "layers": 16,
}  # fmt: skip


def size_faults(size: Any) -> list[str]:
    """What is wrong with a size given for a built-in program, a sentence for each fault."""
    if not isinstance(size, Mapping):
        return [f"must be null or an object with some of {', '.join(SIZE_LIMITS)}"]
    found = [
        f"{str(name)[:60]} is none of {', '.join(SIZE_LIMITS)}" for name in size if name not in SIZE_LIMITS
    ]
    for name, most in SIZE_LIMITS.items():
        value = size.get(name, 1)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            found.append(f"{name} must be a whole number from 1 to {most}")
    return found


def is_reference(name: str) -> bool:
    """Whether a name can be a program's: a built-in one or module:function."""
    return name in BUILT_IN_PROGRAMS or _REFERENCE.fullmatch(name) is not None
