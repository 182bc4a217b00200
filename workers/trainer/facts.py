"""Finds out what a study must know of a workload: which hyperparameters change shapes, how many samples."""

import random
from typing import Any

from tuning.core.errors import Problem, SpecError, escape
from tuning.core.search import derive_seed
from tuning.core.space import Space
from tuning.core.space.distributions import Choice
from tuning.core.space.space import Parameter
from tuning.core.study.facts import StudyFacts
from tuning.core.study.spec import StudySpec
from tuning.core.workload import FunctionWorkload, Workload, check_workload
from workers.trainer.batches import ReadConfig, batch_statistics, load_data

PROBES = 8  # configurations with which the workload's methods are called to see what they read


def study_facts(workload: Workload, spec: StudySpec, device: str = "cpu") -> StudyFacts:
    """Return the facts of a study; SpecError names what in the specification does not fit the workload."""
    space = spec.checked_space(check_workload(workload))
    target_space: Space | None = None
    if spec.scaling > 1 and spec.target_search:
        space, target_space = _held(workload, space)
    elif spec.scaling > 1:
        _check_transfer(workload, space)
    function = isinstance(workload, FunctionWorkload)
    return StudyFacts(
        metric=workload.metric,
        mode=workload.mode,
        epochs=workload.epochs,
        space=space,
        samples=0 if function else len(load_data(workload, _probe(space, 0), device).train),
        batch_size=workload.batch_size,
        static_names=tuple(sorted(_static_names(workload, space))),
        resumable=not function,
        target_space=target_space,
        undivided=_undivided(workload, space) if spec.scaling > 1 else "its trials are full models",
    )


def _undivided(workload: Workload, space: Space) -> str | None:
    """Return why the batches of a target cannot be divided over devices; None where they can."""
    if isinstance(workload, FunctionWorkload):
        return "a training function makes its own steps"
    layer = batch_statistics(workload.model(_probe(space, 0)))
    return f"{layer} needs the whole batch on one device" if layer else None


def _probe(space: Space, index: int) -> dict[str, Any]:
    return space.sample(random.Random(derive_seed(0, "probe", index)))


def _check_transfer(workload: Workload, space: Space) -> None:
    problems = [
        Problem(
            f"/spec/space/{escape(name)}",
            "does not transfer from narrow surrogates to the target, because it depends on the model's size; "
            "fix it, search it with `scaling` 1, or set `target_search` to the number of its values that are "
            "tried on the target in the end",
        )
        for name in space.names
        if name in workload.not_transferable and not _fixed(space, name)
    ]
    if problems:
        raise SpecError(problems)


def _held(workload: Workload, space: Space) -> tuple[Space, Space | None]:
    """Return the space with what does not transfer held at its low end, and the space of what is held.

    The low end, or the first of several choices: a narrow model overfits less and needs the least of it.
    """
    held = [
        parameter
        for parameter in space.parameters
        if parameter.name in workload.not_transferable and not _fixed(space, parameter.name)
    ]
    if not held:
        return space, None
    fixed = [Parameter(one.name, Choice((one.distribution.from_unit(0.0),)), one.conditions) for one in held]
    return space.replace(Space(tuple(fixed))), Space(tuple(held))


def _fixed(space: Space, name: str) -> bool:
    points = space[name].distribution.points()
    return points is not None and len(points) == 1


def _static_names(workload: Workload, space: Space) -> set[str]:
    """Return the names that `model` and `data` read, and those whose values are not all numbers."""
    names = {
        parameter.name
        for parameter in space.parameters
        if isinstance(parameter.distribution, Choice) and not _numeric(parameter.distribution)
    }
    if isinstance(workload, FunctionWorkload):
        return names | ({"batch_size"} & set(space.names))
    for index in range(PROBES if names else 1):
        config = ReadConfig(_probe(space, index))
        workload.model(config)
        workload.data(config)
        names |= config.read & set(space.names)
    return names


def _numeric(distribution: Choice) -> bool:
    return all(isinstance(v, int | float) and not isinstance(v, bool) for v in distribution.values)
