"""When torch.compile pays: it costs seconds once, and saves a share of every step that is left.

Hydro (OSDI 2023) fuses inside a trial lazily for this reason: compiling took it about two epochs and saved
about ten percent of each, so that it paid after about twenty. All seconds here are of one device.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

GUESSED_COMPILE_S = 20.0  # a model of some layers on a processor core, torch 2.13: 10 to 20 s
# a second compilation of a graph finds its kernels in the cache, and in the same process the compiler loaded
REPEATED, REPEATED_HERE = 0.25, 0.05


@dataclass(frozen=True)
class CompileRules:
    """What must hold before compiling is tried, and before what was compiled is kept.

    `margin`: what is saved must exceed this many times what is still to be spent (from 1 on). `best_saving`:
    the share of a step that compiling may save where nobody has measured it. `least_saving`: the share of a
    step that is noise and does not count as saved.
    """

    margin: float = 2.0
    best_saving: float = 0.2
    least_saving: float = 0.03


GPU_RULES = CompileRules(best_saving=0.5)  # launches of small kernels dominate many steps there


@dataclass(frozen=True)
class Judgement:
    """Whether compiling pays, why, and after how many steps it would have cost nothing (None: never)."""

    pays: bool
    reason: str
    break_even_steps: int | None
    saved_s: float


def break_even_steps(eager_s: float, compiled_s: float, compile_s: float) -> int | None:
    """Return the fewest steps after which compiling has cost nothing; None where a step gains nothing."""
    gain_s = eager_s - compiled_s
    if gain_s <= 0 or not math.isfinite(compile_s / gain_s):
        return None
    return math.ceil(compile_s / gain_s)


def judge(
    eager_s: float,
    compiled_s: float,
    ahead_s: float,
    steps_left: int,
    rules: CompileRules,
    compile_s: float | None = None,
) -> Judgement:
    """Say whether the steps that are certainly left should be compiled ones.

    `eager_s` and `compiled_s` are seconds of a step, `ahead_s` what compiling would still cost: nothing once
    it was done. `compile_s` is what it costs in all (`ahead_s`, unless given), for the break-even point.
    """
    gain_s = eager_s - compiled_s
    even = break_even_steps(eager_s, compiled_s, ahead_s if compile_s is None else compile_s)
    saved_s = steps_left * gain_s - ahead_s
    sure_s = gain_s - rules.least_saving * eager_s
    pays = steps_left * sure_s > rules.margin * ahead_s
    if even is None or (sure_s <= 0 and not pays):
        reason = f"a compiled step takes {_milliseconds(compiled_s)}, an eager one {_milliseconds(eager_s)}"
    else:
        saves = f"a compiled step saves {_milliseconds(gain_s)} of {_milliseconds(eager_s)}"
        reason = f"{saves}; {steps_left} steps are left, and it breaks even after {even}"
    return Judgement(pays, reason, even, saved_s)


def worth_trying(eager_s: float, compile_s: float, steps_left: int, rules: CompileRules) -> Judgement:
    """Say whether compiling could pay at all, before anybody has measured a compiled step.

    The bound is optimistic: it takes a compiled step to save `best_saving`.
    """
    found = judge(eager_s, eager_s * (1 - rules.best_saving), compile_s, steps_left, rules)
    left_s, best_s = steps_left * eager_s, steps_left * eager_s * rules.best_saving
    bound = f"of {left_s:.1f} s that are left at most {best_s:.1f} s could be saved"
    reason = f"{bound}; compiling takes about {compile_s:.1f} s"
    return Judgement(found.pays, reason, found.break_even_steps, found.saved_s)


def expected_compile_s(
    same: Sequence[float], others: Sequence[float], remembered: float | None, loaded: bool = False
) -> float:
    """Return what compiling will plausibly cost.

    `same` are measurements of the same graph in this study, oldest first, `others` of other graphs on the
    same kind of device, `remembered` what this machine measured in earlier studies. `loaded` says that this
    process has compiled before.
    """
    if same:
        again = REPEATED_HERE if loaded else REPEATED
        return again * same[0] if len(same) == 1 else same[-1]
    if others:
        return max(others)
    return GUESSED_COMPILE_S if remembered is None else remembered


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"
