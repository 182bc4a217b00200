"""Seeds derived from a study's seed: the same for the same names on every machine and in every process."""

import hashlib


def derive_seed(seed: int, *names: object) -> int:
    """Return a seed below 2**53 for a purpose, for example `derive_seed(0, "trial", 17)`."""
    text = "/".join(map(str, (seed, *names)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 11
