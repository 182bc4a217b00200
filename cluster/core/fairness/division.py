"""Fair division: guarantees first, the rest by weight up to what is asked (as in KAI)."""

from collections.abc import Mapping

from cluster.core.errors import QuotaError


def divide(
    capacity: int, requested: Mapping[str, int], guaranteed: Mapping[str, int], weight: Mapping[str, int]
) -> dict[str, int]:
    """Return each owner's fair share of a capacity in whole thousandths.

    Nobody gets more than it asks for; nothing is left while somebody with a weight still asks. Where the
    guarantees exceed the capacity, they are scaled down evenly.

    Raises:
        QuotaError: a number is negative.
    """
    if min([capacity, *requested.values(), *guaranteed.values(), *weight.values()]) < 0:
        raise QuotaError("capacity, requests, guarantees and weights cannot be negative")
    owners = sorted(requested)
    share = {owner: min(requested[owner], guaranteed.get(owner, 0)) for owner in owners}
    promised = sum(share.values())
    if promised > capacity:
        return _apportion(capacity, share)
    left = capacity - promised
    while left > 0:
        hungry = {o: weight.get(o, 1) for o in owners if share[o] < requested[o] and weight.get(o, 1) > 0}
        if not hungry:
            break
        given = 0
        for owner, part in _apportion(left, hungry).items():
            part = min(part, requested[owner] - share[owner])
            share[owner] += part
            given += part
        left -= given
    return share


def _apportion(amount: int, weights: Mapping[str, int]) -> dict[str, int]:
    """Split a whole amount by weight; the largest remainders get the odd units, ties by name."""
    total = sum(weights.values())
    parts = {owner: amount * weight // total for owner, weight in weights.items()}
    odd = amount - sum(parts.values())
    by_remainder = sorted(weights, key=lambda owner: (-(amount * weights[owner] % total), owner))
    for owner in by_remainder[:odd]:
        parts[owner] += 1
    return parts


def jain_index(shares: list[float]) -> float:
    """Return Jain's fairness index: 1 where all have the same, 1/n where one has everything."""
    square = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * square) if square else 1.0
