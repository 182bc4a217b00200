"""Whether hyperparameters can be expected to transfer between the widths of this study's models."""

from typing import Any

from tuning.core.study import Study
from tuning.core.workload import FunctionWorkload, Workload

SHOWN = ("coordinate_check", "coordinate_reason")


def coordinate_verdict(study: Study, workload: Workload, setting: Any) -> dict[str, Any]:
    """Return what the study's own transfer check found, or run a coordinate check now.

    A check that cannot run says why.
    """
    if study.spec.scaling == 1:
        return {"coordinate_check": "not needed"}
    report = study.state.transfer
    if report is not None:
        return {name: report[name] for name in SHOWN if name in report} | {"report": report}
    if isinstance(workload, FunctionWorkload):
        return {"coordinate_check": "not possible", "coordinate_reason": "a training function has no model()"}
    from workers.trainer.transfer import coordinate_report

    found = coordinate_report(workload, setting, study.trials[0].config)
    return {name: found[name] for name in SHOWN}
