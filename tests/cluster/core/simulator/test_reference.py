"""Whole public traces against an independent simulator that follows the same default rules."""

import numpy as np
import pytest

from cluster.core.simulator.run import simulate
from cluster.core.traces import even_nodes, read_jobs
from forebay.cli.bench.schedule_cases import REFERENCE, chronus

WITHIN = {"fifo": 0.01, "fifo-skip": 0.01, "sjf": 0.01, "srtf": 0.03, "las": 0.03}


@pytest.fixture(scope="module")
def traces(shared_dir):
    folder = shared_dir / "traces"
    return {"philly": read_jobs(folder / "philly_2017-10-09_7d.csv.gz"), "chronus": chronus(folder)}


@pytest.mark.parametrize("case", [("philly", 448), ("chronus", 576)], ids=str)
def test_completion_times_are_those_of_the_reference(traces, case):
    trace, devices = case
    for policy, within in WITHIN.items():
        figures = simulate(traces[trace], even_nodes(devices), policy).figures()
        assert figures["avg_jct_s"] == pytest.approx(REFERENCE[case][policy], rel=within), policy
        assert figures["completed"] == len(traces[trace])


def test_the_file_as_it_is_counts_jobs_without_devices(shared_dir):
    path = shared_dir / "traces" / "chronus_philly_mix1_8000.csv.gz"
    renames = {"num_gpus": "num_gpu", "submit_s": "submit_time", "duration_s": "duration"}
    result = simulate(read_jobs(path, renames=renames, time_unit="minutes"), even_nodes(576), "fifo")
    free = result.jobs.devices == 0
    assert free.sum() == 7
    assert np.all(result.start_s[free] == result.jobs.submit_s[free])


def test_no_promise_is_broken_and_more_jobs_are_on_time_than_without_admission(traces):
    jobs = traces["chronus"]
    promised = simulate(jobs, even_nodes(576), "deadline")
    without = simulate(jobs, even_nodes(576), "edf")
    assert promised.deadline_miss_rate() == 0.0
    assert promised.on_time() == int(np.isfinite(jobs.deadline_s).sum()) - len(promised.refused)
    assert promised.on_time() > without.on_time()
    # everybody without a deadline still ends
    assert np.isfinite(promised.end_s[np.isinf(jobs.deadline_s)]).all()
