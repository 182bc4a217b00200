"""A search space: named distributions, some of them only under a condition on another one.

Plain data form, the one of job files::

    {"lr": {"type": "loguniform", "low": 1e-3, "high": 1.0},
     "momentum": {"type": "uniform", "low": 0.5, "high": 0.99,
                  "when": [{"name": "optimizer", "values": ["sgd"]}]}}
"""

import json
import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tuning.core.errors import Problem, SpecError, escape
from tuning.core.space.distributions import Choice, Distribution, same
from tuning.core.space.parse import parse_distribution

Config = dict[str, Any]

MOST_PARAMETERS = 256
LONGEST_NAME = 255


def fingerprint(config: Mapping[str, Any]) -> str:
    """Return a text that two configurations share exactly if they are the same."""
    return json.dumps(config, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


@dataclass(frozen=True)
class Condition:
    """The parameter exists only where `name` has one of `values`."""

    name: str
    values: tuple[Any, ...]

    def holds(self, config: Mapping[str, Any]) -> bool:
        """Return whether a configuration meets the condition; it does not where `name` is inactive."""
        return self.name in config and any(same(value, config[self.name]) for value in self.values)

    def to_json(self) -> dict[str, Any]:
        """Return the condition as it stands in a job file."""
        return {"name": self.name, "values": list(self.values)}


@dataclass(frozen=True)
class Parameter:
    """One hyperparameter: its name, its distribution and the conditions under which it exists."""

    name: str
    distribution: Distribution
    conditions: tuple[Condition, ...] = ()

    def active(self, config: Mapping[str, Any]) -> bool:
        """Return whether the parameter exists next to these values of the earlier ones."""
        return all(condition.holds(config) for condition in self.conditions)


@dataclass(frozen=True)
class Space:
    """Parameters in order; a condition only ever names an earlier parameter."""

    parameters: tuple[Parameter, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all parameters, conditional ones included."""
        return tuple(parameter.name for parameter in self.parameters)

    def __getitem__(self, name: str) -> Parameter:
        for parameter in self.parameters:
            if parameter.name == name:
                return parameter
        raise KeyError(name)

    def sample(self, rng: random.Random) -> Config:
        """Draw one configuration; every parameter costs one number, active or not."""
        config: Config = {}
        for parameter in self.parameters:
            u = rng.random()
            if parameter.active(config):
                config[parameter.name] = parameter.distribution.from_unit(u)
        return config

    def contains(self, config: Mapping[str, Any]) -> bool:
        """Return whether a configuration has exactly the active parameters, each with a legal value."""
        active = [parameter for parameter in self.parameters if parameter.active(config)]
        return {p.name for p in active} == set(config) and all(
            p.distribution.contains(config[p.name]) for p in active
        )

    def grid(self) -> Iterator[Config]:
        """Yield every configuration, the first parameter varying slowest; SpecError on infinite ranges."""
        infinite = [p.name for p in self.parameters if p.distribution.points() is None]
        if infinite:
            rule = "is a continuous range; a grid needs finite ones (choice, grid, randint, quantised)"
            raise SpecError([Problem(f"/{escape(name)}", rule) for name in infinite])
        yield from self._expand(0, {})

    def _expand(self, depth: int, config: Config) -> Iterator[Config]:
        if depth == len(self.parameters):
            yield dict(config)
            return
        parameter = self.parameters[depth]
        if not parameter.active(config):
            yield from self._expand(depth + 1, config)
            return
        for value in parameter.distribution.points() or ():
            yield from self._expand(depth + 1, {**config, parameter.name: value})

    def size(self, limit: int = 10_000_000) -> float:
        """Return the number of configurations, infinite for a continuous space or above `limit`."""
        points = [parameter.distribution.points() for parameter in self.parameters]
        if any(values is None for values in points):
            return math.inf
        if not any(parameter.conditions for parameter in self.parameters):
            return math.prod(len(values) for values in points if values is not None)
        count = 0
        for _ in self.grid():
            count += 1
            if count > limit:
                return math.inf
        return count

    def encode(self, config: Mapping[str, Any]) -> list[float]:
        """Return the configuration as a point of the unit cube; NaN stands for an inactive parameter."""
        return [
            parameter.distribution.to_unit(config[parameter.name]) if parameter.name in config else math.nan
            for parameter in self.parameters
        ]

    def replace(self, other: "Space") -> "Space":
        """Return this space with the parameters of `other` in place of its own of the same name."""
        own = [p for p in self.parameters if p.name not in other.names]
        return ordered([*own, *other.parameters])

    def to_json(self) -> dict[str, Any]:
        """Return the space as it stands in a job file."""
        document: dict[str, Any] = {}
        for parameter in self.parameters:
            document[parameter.name] = parameter.distribution.to_json()
            if parameter.conditions:
                document[parameter.name]["when"] = [c.to_json() for c in parameter.conditions]
        return document


def parse_space(data: Any, pointer: str = "") -> Space:
    """Return the space that plain data describes; SpecError names every broken rule."""
    if not isinstance(data, Mapping):
        raise SpecError([Problem(pointer, "must be an object of parameters")])
    problems: list[Problem] = []
    parameters: list[Parameter] = []
    if len(data) > MOST_PARAMETERS:
        problems.append(Problem(pointer, f"must have at most {MOST_PARAMETERS} parameters"))
    for name, entry in list(data.items())[:MOST_PARAMETERS]:
        at = f"{pointer}/{escape(str(name))}"
        try:
            check_name(name, at)
            conditions = parse_conditions(entry, at)
            parameters.append(Parameter(name, parse_distribution(entry, at), conditions))
        except SpecError as error:
            problems.extend(error.problems)
    if problems:
        raise SpecError(problems)
    return ordered(parameters, pointer)


def check_name(name: Any, pointer: str) -> None:
    """Raise SpecError unless a parameter may have this name."""
    if not isinstance(name, str) or not name.strip() or len(name) > LONGEST_NAME:
        raise SpecError([Problem(pointer, f"must have a name of 1 to {LONGEST_NAME} characters")])


def parse_conditions(entry: Any, pointer: str) -> tuple[Condition, ...]:
    """Return the conditions that a plain-data entry carries in `when`."""
    when = entry.get("when", []) if isinstance(entry, Mapping) else []
    conditions = when if isinstance(when, list) else [when]
    parsed = []
    for index, condition in enumerate(conditions):
        at = f"{pointer}/when/{index}" if isinstance(when, list) else f"{pointer}/when"
        if not isinstance(condition, Mapping) or set(condition) != {"name", "values"}:
            raise SpecError([Problem(at, "must be an object with `name` and `values`")])
        if not isinstance(condition["values"], list) or not condition["values"]:
            raise SpecError([Problem(f"{at}/values", "must be a list with at least one value")])
        values = tuple(tuple(v) if isinstance(v, list) else v for v in condition["values"])
        parsed.append(Condition(condition["name"], values))
    return tuple(parsed)


def ordered(parameters: list[Parameter], pointer: str = "") -> Space:
    """Sort parameters so that conditions name earlier ones; SpecError where that is impossible."""
    placed: list[Parameter] = []
    left = list(parameters)
    while left:
        known = {parameter.name for parameter in placed}
        ready = [p for p in left if all(c.name in known for c in p.conditions)]
        if not ready:
            raise SpecError([_unmet(parameter, parameters, pointer) for parameter in left])
        placed.append(ready[0])
        left.remove(ready[0])
    space = Space(tuple(placed))
    problems = [problem for parameter in placed for problem in _impossible(parameter, space, pointer)]
    if problems:
        raise SpecError(problems)
    return space


def _unmet(parameter: Parameter, parameters: list[Parameter], pointer: str) -> Problem:
    names = {other.name for other in parameters}
    unknown = [c.name for c in parameter.conditions if c.name not in names]
    rule = f"names `{unknown[0]}`, which is no parameter" if unknown else "depends on itself"
    return Problem(f"{pointer}/{escape(parameter.name)}/when", rule)


def _impossible(parameter: Parameter, space: Space, pointer: str) -> Iterator[Problem]:
    at = f"{pointer}/{escape(parameter.name)}/when"
    for condition in parameter.conditions:
        other = space[condition.name].distribution
        if not isinstance(other, Choice) and other.points() is None:
            yield Problem(at, f"needs a parameter with listed values; `{condition.name}` is continuous")
        elif not all(other.contains(value) for value in condition.values):
            yield Problem(at, f"names a value that `{condition.name}` cannot have")
