"""The transfer report of a workload: both questions, and what cannot be asked."""

import pytest
import torch

from tuning.core.study.actions import Member
from tuning.core.workload import Workload, workload
from workers.trainer.orders import GoOn, Setting, Stopped, TransferOrder
from workers.trainer.transfer import RANK_STEPS, check_transfer, transfer_report


class Small(Workload):
    metric, mode, epochs, batch_size = "loss", "min", 2, 32
    width = 64

    def model(self, config):
        return torch.nn.Sequential(
            torch.nn.Linear(6, self.width), torch.nn.ReLU(), torch.nn.Linear(self.width, self.width),
            torch.nn.ReLU(), torch.nn.Linear(self.width, 3),
        )  # fmt: skip

    def data(self, config):
        generator = torch.Generator().manual_seed(0)
        inputs = torch.randn(128, 6, generator=generator)
        targets = inputs[:, :3].argmax(1)
        return (inputs[:96], targets[:96]), (inputs[96:], targets[96:])

    def optimizer(self, config):
        return torch.optim.SGD, {"lr": config["lr"], "momentum": 0.9}


def order(scaling=8, trials=6, parametrization="mup"):
    setting = Setting("small", "unused", 0, scaling=scaling, parametrization=parametrization, threads=1)
    rates = [10 ** (-3 + 2.5 * index / 5) for index in range(trials)]
    members = tuple(Member(index, {"lr": rate}, index) for index, rate in enumerate(rates))
    return TransferOrder("k0", setting, members)


def test_a_sound_workload_passes_both_checks():
    event = check_transfer(order(), None, Small())
    report = event.report
    assert (report["verdict"], report["coordinate_check"]) == ("passed", "passed")
    assert report["rank_correlation"] >= 0.8
    assert report["rank_scalings"] == [8, 4]
    assert [row["trial"] for row in report["ranking"]] == list(range(6))
    assert {layer["layer"] for layer in report["layers"]} == {"0", "2", "4"}
    assert event.seconds > 0


def test_rules_that_do_not_hold_fail_it():
    report = transfer_report(Small(), order(parametrization="hydro").setting, order().members[:2], GoOn())
    assert (report["verdict"], report["rank_correlation"]) == ("failed", None)
    assert "too few to rank" in report["reason"]


def test_a_model_too_narrow_is_a_reason_and_no_error():
    class Narrow(Small):
        width = 8

    report = check_transfer(order(), None, Narrow()).report
    assert report["verdict"] == "not possible"
    assert report["rank_correlation"] is None


def test_a_training_function_has_nothing_to_check():
    function = workload(space={"lr": {"type": "uniform", "low": 0, "high": 1}}, metric="loss", epochs=1)(
        print
    )
    assert "no model()" in check_transfer(order(), None, function).report["reason"]


def test_a_stop_ends_it_at_the_next_batch():
    class Stopping(GoOn):
        asked = 0

        def stopped(self):
            self.asked += 1
            return self.asked > 3

    control = Stopping()
    assert check_transfer(order(), control, Small()).report["reason"] == "it was stopped"
    assert control.asked == 4 < RANK_STEPS
    with pytest.raises(Stopped):
        transfer_report(Small(), order().setting, order().members, Stopping())
