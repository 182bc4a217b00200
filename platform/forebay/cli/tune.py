"""`forebay tune WORKLOAD`: a whole study in this process tree."""

import json
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from forebay.cli.errors import BadInput, CommandError, Exit
from forebay.cli.output import emit_json, say
from tuning.core.errors import Problem, SnapshotError, SpecError, TuningError, WorkloadError


def process_age_s() -> float:
    """Return for how long this process has lived: a study's makespan starts with the command."""
    try:
        ticks = float(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19])
        uptime_s = float(Path("/proc/uptime").read_text().split()[0])
        return max(uptime_s - ticks / os.sysconf("SC_CLK_TCK"), 0.0)
    except (OSError, IndexError, ValueError):
        return 0.0


def _option_name(pointer: str) -> str:
    parts = pointer.removeprefix("/spec").strip("/").split("/")
    names = {"deadline_s": "--deadline", "parameters": "--parameter", "workload": "WORKLOAD"}
    if parts[0] == "scheduler" and len(parts) > 1 and parts[1] != "name":
        return f"--{parts[1]}"
    option = names.get(parts[0], f"--{parts[0].replace('_', '-')}")
    return " ".join((option, *parts[1:])) if parts[0] in ("space", "parameters") else option


def _sentence(problems: Iterable[Problem]) -> str:
    return "; ".join(f"{_option_name(problem.pointer)} {problem.detail}" for problem in problems)


def _parameters(pairs: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise BadInput(f"--parameter must be NAME=VALUE, got {pair!r}")
        try:
            found[name] = json.loads(text)
        except ValueError:
            found[name] = text
    return found


def _space(text: str | None) -> Any:
    if text is None:
        return None
    try:
        content = Path(text).read_text() if not text.lstrip().startswith("{") else text
        return json.loads(content)
    except (OSError, ValueError) as error:
        raise BadInput(f"--space must be JSON or a file of JSON: {error}") from error


def _scheduler(name: str | None, grace: int | None, reduction: int | None) -> Any:
    given = {"grace": grace, "reduction": reduction}
    chosen = {key: value for key, value in given.items() if value is not None}
    if name in (None, "fifo"):
        if chosen:
            raise BadInput(f"--{next(iter(chosen))} belongs to --scheduler asha or asha-promote")
        return name
    return {"name": name, **chosen}


def _fusion(text: str | None) -> Any:
    return int(text) if text is not None and text.lstrip("+-").isdigit() else text


@click.command(name="tune")
@click.argument("workload", required=False)
@click.option("--list", "list_workloads", is_flag=True, help="List the registered workloads.")
@click.option("--trials", type=int, help="How many configurations to try in all (20).")
@click.option("--search", help="random, grid, tpe, gp, cmaes, qmc or nsgaii (random).")
@click.option("--duplicates", help="avoid or keep: whether random search may repeat itself (avoid).")
@click.option("--scheduler", help="fifo, asha or asha-promote (fifo).")
@click.option("--epochs", type=int, help="Budget of one trial (the workload's).")
@click.option("--target-epochs", type=int, help="Epochs of a target model (as --epochs).")
@click.option("--grace", type=int, help="ASHA: epochs before the first comparison (3).")
@click.option("--reduction", type=int, help="ASHA: one in this many goes on (3).")
@click.option("--scaling", type=int, help="Target width over surrogate width; 1 is off (8).")
@click.option("--parametrization", help="mup, standard or hydro (mup).")
@click.option("--fusion", help="auto, off, or how many trials share a container (auto).")
@click.option("--top-k", type=int, help="How many of the best become target models (3).")
@click.option("--target-search", type=int, help="Targets that try what does not transfer, dropout (0).")
@click.option("--transfer-check", help="auto, off or require: a look at two widths first (auto).")
@click.option("--compile", help="auto or off: torch.compile where it is measured to pay (auto).")
@click.option("--eager", type=float, help="Share of finished trials before a first target; 1 is off (0.5).")
@click.option("--devices", type=int, help="Devices to use (all).")
@click.option("--deadline", type=float, help="Seconds after which the best model so far counts.")
@click.option("--seed", type=int, help="Everything random follows from it (0).")
@click.option("--space", help="JSON, or a file of it, that replaces entries of the workload's space.")
@click.option("--parameter", multiple=True, metavar="NAME=VALUE", help="A fixed setting of the workload.")
@click.option("--checkpoint-every", type=int, help="Epochs between two checkpoints (1).")
@click.option("--check-transfer", is_flag=True, help="Check the width transfer before the search.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder for models, snapshot and result.")
@click.option("--resume", type=click.Path(path_type=Path), help="An earlier --out to go on with.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(workload: str | None, list_workloads: bool, as_json: bool, **options: Any) -> int:
    """Search hyperparameters on narrow surrogates, many at once, then train the best at full width.

    WORKLOAD is a registered name (see --list) or package.module:Name.
    """
    started_s = time.monotonic() - process_age_s()
    if list_workloads:
        return _list(as_json)
    if workload is None:
        raise BadInput("WORKLOAD is missing: a registered name (see --list) or package.module:Name")
    if options["resume"] is not None and options["out"] is not None:
        raise BadInput("--out and --resume exclude each other: a resumed study goes on in its own folder")
    sys.path.insert(0, os.getcwd())
    settings = {
        "parameters": _parameters(options.pop("parameter")),
        "space": _space(options.pop("space")),
        "scheduler": _scheduler(options.pop("scheduler"), options.pop("grace"), options.pop("reduction")),
        "fusion": _fusion(options.pop("fusion")),
        "deadline_s": options.pop("deadline"),
        **options,
    }
    result = _tune(workload, settings, started_s)
    if as_json:
        emit_json(result.document)
    else:
        _print(result.document)
    return _exit_code(result.document)


def _tune(workload: str, settings: dict[str, Any], started_s: float) -> Any:
    from forebay.tuner import make_spec, tune

    study_options = {
        name: value
        for name, value in settings.items()
        if name not in ("out", "resume", "parameters", "check_transfer")
    }
    if settings["resume"] is None and settings["out"] is None:
        settings["out"] = _fresh_folder(workload)
    try:
        # before the workload is loaded, which may take seconds
        make_spec(workload, settings["parameters"], study_options)
        return tune(workload, started_s=started_s, watcher=_progress(), **settings)
    except SpecError as error:
        raise BadInput(_sentence(error.problems)) from error
    except (WorkloadError, SnapshotError) as error:
        raise BadInput(str(error)) from error
    except TuningError as error:
        raise CommandError(str(error), Exit.FAILED) from error
    except OSError as error:
        raise BadInput(f"--out or --resume: {error}") from error


def _fresh_folder(workload: str) -> Path:
    name = "".join(c if c.isalnum() or c in "-_." else "-" for c in workload)
    return Path("forebay-out") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"


def _progress() -> Any:
    """Show one line that is rewritten, where a person is watching."""
    if not sys.stderr.isatty():
        return None

    def show(study: Any, now_s: float) -> None:
        ended = sum(trial.ended for trial in study.trials)
        order = study.state.best_order()
        best = study.trials[order[0]].metric(study.state.facts.metric) if order else None
        text = f"{now_s:6.1f} s  {ended}/{study.spec.trials} trials"
        text += f"  best surrogate {best:.4g}" if best is not None else ""
        text += "".join(f"  target {t.trial}: {t.state}" for t in study.targets)
        click.echo(f"\r\x1b[K{text}", err=True, nl=False)

    return show


def _list(as_json: bool) -> int:
    from workers.trainer.describe import describe_all

    workloads = describe_all()
    if as_json:
        emit_json({"workloads": workloads})
        return Exit.SUCCESS
    for workload in workloads:
        click.echo(f"{workload['name']:16} {workload['error'] or workload['description']}")
    return Exit.SUCCESS


def _print(document: dict[str, Any]) -> None:
    if sys.stderr.isatty():
        say("")
    states: dict[str, int] = {}
    for row in document["trial_table"]:
        states[row["state"]] = states.get(row["state"], 0) + 1
    counts = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    click.echo(
        f"{document['workload']}: {document['trials']} trials ({counts}) in {document['makespan_s']:.1f} s"
    )
    click.echo(
        f"  search {document['search_s']:.1f} s, then target {document['target_s']:.1f} s; "
        f"profiling {document['profiling_s']:.2f} s, repacking {document['repacking_s']:.2f} s, "
        f"compiling {document['compiling_s']:.2f} s"
    )
    for decision in document["compile"]:
        if decision["outcome"] in ("kept", "dropped", "failed"):
            click.echo(f"  compiling {decision['model']}: {decision['outcome']}, {decision['reason']}")
    best = document["best"]
    if best is None:
        click.echo(f"  no model: {document['reason']}")
    else:
        config = ", ".join(f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"
                           for name, value in best["config"].items())  # fmt: skip
        click.echo(f"  best: trial {best['trial']}, {document['metric']} {best['metric']:.4g} ({config})")
        click.echo(f"  model: {best['model']}")
    for warning in document["warnings"]:
        click.echo(f"  warning: {warning}", err=True)


def _exit_code(document: dict[str, Any]) -> int:
    if document["reason"] == "interrupted":
        return Exit.INTERRUPTED
    if document["best"] is not None:
        return Exit.SUCCESS
    return Exit.TIMED_OUT if document["reason"] == "deadline" else Exit.FAILED
