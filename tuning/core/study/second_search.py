"""The second search: hyperparameters that do not transfer (dropout, ...) are tried on the best target itself.

The surrogate search holds them at one value. Once its targets are trained, the best of them is trained again
with other values, spread evenly over their ranges (a Latin hypercube), everything else being as it was found.
"""

import random

from tuning.core.search import derive_seed
from tuning.core.space import Config
from tuning.core.study.records import Target
from tuning.core.study.results import best_target
from tuning.core.study.state import StudyState


def want_variants(state: StudyState) -> None:
    """Ask for the targets of the second search, once, when every target of the first is done."""
    if not state.spec.target_search or state.facts.target_space is None or state.variants:
        return
    if any(target.state in ("waiting", "running") for target in state.targets.values()):
        return
    base = best_target(state)
    if base is None:
        return
    known = [{name: state.trials[base.trial].config.get(name) for name in state.facts.target_space.names}]
    for values in spread_values(state):
        if values not in known:
            known.append(values)
            state.variants.append(Target(base.trial, variant=len(known) - 1, values=values))


def spread_values(state: StudyState) -> list[Config]:
    """Return `target_search` points of the target space, one in each part of every parameter's range."""
    count, space = state.spec.target_search, state.facts.target_space
    assert space is not None
    rng = random.Random(derive_seed(state.spec.seed, "second search"))
    columns = {}
    for parameter in space.parameters:
        parts = list(range(count))
        rng.shuffle(parts)
        columns[parameter.name] = [parameter.distribution.from_unit((part + 0.5) / count) for part in parts]
    return [{name: column[index] for name, column in columns.items()} for index in range(count)]
