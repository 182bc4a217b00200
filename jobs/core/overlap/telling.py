"""Times and sizes in words for people."""


def seconds_told(seconds: float) -> str:
    """A time for people: `1.5 ms`."""
    unit, factor = (
        ("s", 1.0) if seconds >= 1 or seconds == 0 else ("ms", 1e3) if seconds >= 1e-3 else ("µs", 1e6)
    )
    return f"{seconds * factor:.4g} {unit}"


def bytes_told(count: float) -> str:
    """A size for people, in powers of ten: `2.2 GB`; below a kilobyte `512 bytes`."""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.4g} {unit}"
    return f"{count:g} bytes"
