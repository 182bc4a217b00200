"""Runs training functions: the trials of a container in one call, or a target."""

import time
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from tuning.core.study.actions import Member
from tuning.core.study.events import (
    ContainerEnded,
    ModelSaved,
    Reported,
    TargetEnded,
    TargetReported,
    TrialFailed,
)
from tuning.core.workload import FunctionWorkload
from workers.trainer import checkpoints
from workers.trainer.orders import ContainerOrder, Control, Reporter, Setting, Stopped, TargetOrder
from workers.trainer.per_trial import joint_config
from workers.trainer.session import Ended, Report, Session, running
from workers.trainer.solo import describe_error


def run_function_container(
    order: ContainerOrder, reporter: Reporter, control: Control, workload: FunctionWorkload
) -> ContainerEnded:
    """Run a training function for a container's members: once for all, or, where that fails, once each."""
    run = _FunctionRun(order, reporter, control, workload)
    outcome, note = "finished", None
    try:
        if order.fused and len(order.members) > 1:
            note = run.together()
        else:
            run.one_by_one(order.members)
    except Stopped:
        outcome = "stopped"
    return ContainerEnded(order.run, 0.0, outcome, run.epoch, note=note)


class _FunctionRun:
    def __init__(
        self, order: ContainerOrder, reporter: Reporter, control: Control, workload: FunctionWorkload
    ) -> None:
        self.order, self.reporter, self.control, self.workload = order, reporter, control, workload
        self.spent = {member.trial: 0.0 for member in order.members}
        self.charged_s = time.perf_counter()
        self.epoch = 0
        self.left: set[int] = set()
        self.session: Session | None = None

    def together(self) -> str | None:
        """Run the function once for all members; if it breaks, once for each that has not ended."""
        members = self.order.members
        self.left = {member.trial for member in members}
        try:
            self._call(members)
        except (Ended, Stopped):
            raise
        except Exception as error:
            left = [member for member in members if member.trial in self.left]
            self.one_by_one(left)
            return f"{len(left)} trials were trained one by one: {describe_error(error)}"
        return None

    def one_by_one(self, members: Sequence[Member]) -> None:
        """Run the function once for each member; one that raises is one failed trial."""
        for member in members:
            self.left = {member.trial}
            try:
                self._call([member])
            except Stopped:
                raise
            except Exception as error:
                self.reporter(TrialFailed(self.order.run, member.trial, describe_error(error)))

    def _call(self, members: Sequence[Member]) -> None:
        session = make_session(members, self.order.setting, self._report, self.control)
        self.session = session
        with running(session), torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.order.setting.data_seed)
            try:
                self.workload(joint_config([member.config for member in members]))
            except Ended:
                return

    def _report(
        self, epoch: int, metrics: dict[int, dict[str, float]], failures: dict[int, str]
    ) -> Sequence[int]:
        for trial, reason in failures.items():
            self.reporter(TrialFailed(self.order.run, trial, reason))
        now = time.perf_counter()
        for trial in metrics:
            self.spent[trial] += (now - self.charged_s) / len(metrics)
        self.epoch = max(self.epoch, epoch)
        last = epoch >= self.order.until_epoch
        if last and self.order.keep_models:
            self._save(metrics)
        if metrics:
            seconds = {trial: self.spent[trial] for trial in metrics}
            self.reporter(Reported(self.order.run, epoch, metrics, seconds))
        self.left = set() if last else set(metrics)
        if self.left:
            rung = epoch in self.order.rungs
            verdict = self.control.verdict(epoch) if rung else self.control.pending()
            self.left -= set(verdict.stop)
            if verdict.pause:
                raise Stopped
        self.charged_s = time.perf_counter()
        return [member.trial for member in self.order.members if member.trial in self.left]

    def _save(self, metrics: dict[int, dict[str, float]]) -> None:
        assert self.session is not None
        for member in self.session.members:
            if member.trial in metrics:
                path = Path(self.order.setting.folder) / f"trial-{member.trial}.safetensors"
                card = {
                    "workload": self.order.setting.workload,
                    "trial": member.trial,
                    "config": member.config,
                    "metrics": metrics[member.trial],
                }
                text = checkpoints.write_model(path, session_weights(self.session, member.trial), card)
                self.reporter(ModelSaved(self.order.run, member.trial, text))


def make_session(
    members: Sequence[Member], setting: Setting, report: Report, control: Control, target: bool = False
) -> Session:
    """Return a session for these members; a target has full width."""
    return Session(
        members,
        report,
        control.stopped,
        data_seed=setting.data_seed,
        device=setting.device,
        scaling=1 if target else setting.scaling,
        parametrization=setting.parametrization,
    )


def session_weights(session: Session, trial: int) -> dict[str, Tensor]:
    """Return a trial's ordinary state dict; empty where the function prepared no model."""
    inner = session.models[0].inner if session.models else None
    if inner is None:
        return {}
    if session.fused:
        from tuning.core import hydro

        index = [member.trial for member in session.members].index(trial)
        return dict(hydro.extract(inner, index).state_dict())
    return dict(inner.state_dict())


def run_function_target(
    order: TargetOrder, reporter: Reporter, control: Control, workload: FunctionWorkload
) -> TargetEnded:
    """Run a training function at full width and save the model it prepared."""
    started = time.perf_counter()
    member = Member(order.trial, dict(order.config), order.seed)
    last: dict[str, float] = {}
    saved: dict[str, Tensor] = {}
    epochs = 0

    def report(epoch: int, metrics: dict[int, dict[str, float]], failures: dict[int, str]) -> Sequence[int]:
        nonlocal epochs
        if failures:
            raise RuntimeError(failures[order.trial])
        epochs = epoch
        last.clear()
        last.update(metrics[order.trial])
        saved.update({name: t.detach().clone() for name, t in session_weights(session, order.trial).items()})
        reporter(TargetReported(order.run, epoch, dict(last), time.perf_counter() - started))
        return [order.trial] if epoch < order.epochs else []

    session = make_session([member], order.setting, report, control, target=True)
    state, reason = "completed", None
    with running(session), torch.random.fork_rng(devices=[]):
        torch.manual_seed(order.setting.data_seed)
        try:
            workload(dict(order.config))
        except Ended:
            pass
        except Stopped:
            state, reason = "cut", None if saved else "stopped before its first epoch ended"
        except Exception as error:
            state, reason = "failed", describe_error(error)
    if state == "completed" and workload.metric not in last:
        saw = f"; saw: {', '.join(sorted(last))}" if last else "; nothing was reported"
        state, reason = "failed", f"metric `{workload.metric}` never reported{saw}"
    if state == "failed" or not saved:
        return TargetEnded(order.run, 0.0, state, last.get(workload.metric), reason=reason)
    card = {
        "workload": order.setting.workload,
        "trial": order.trial,
        "config": dict(order.config),
        "epochs": epochs,
        "metrics": last,
        "state": state,
    }
    path = Path(order.setting.folder) / f"target-{order.trial}.safetensors"
    text = checkpoints.write_model(path, saved, card)
    return TargetEnded(order.run, 0.0, state, last.get(workload.metric), text)
