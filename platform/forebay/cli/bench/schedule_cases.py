"""What `forebay bench schedule` measures; every figure is computed here and now."""

import math
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from cluster.core.decision import ClusterState
    from cluster.core.workload import JobTable

# (trace, devices, policy) -> (mean completion, mean queueing) in seconds of an independent simulator that
# follows the same default rules, ties by row; see docs/scheduling.md.
REFERENCE = {
    ("philly", 448): {"fifo": 36999, "fifo-skip": 19864, "sjf": 11706, "srtf": 8148, "las": 9504},
    ("philly", 512): {"fifo": 17647, "fifo-skip": 11150, "sjf": 9874, "srtf": 7910, "las": 8314},
    ("chronus", 576): {"fifo": 58437, "fifo-skip": 20303, "sjf": 17377, "srtf": 12917, "las": 16422},
    ("chronus", 768): {"fifo": 21761, "fifo-skip": 13851, "sjf": 13566, "srtf": 11203, "las": 11771},
}
# Weng et al., ATC 2023: GPU allocation at 130 % arrived, per cent.
PUBLISHED_ALLOCATION = {
    "random": 87.47,
    "dotprod": 90.85,
    "gpu-clustering": 91.88,
    "gpu-packing": 92.00,
    "bestfit": 93.08,
    "fgd": 95.39,
}


def philly(folder: Path) -> "JobTable":
    """Return the week of Philly (Jeon et al., ATC 2019)."""
    from cluster.core.traces import read_jobs

    return read_jobs(folder / "philly_2017-10-09_7d.csv.gz")


def chronus(folder: Path) -> "JobTable":
    """Return the Chronus trace (Gao et al., SoCC 2021) with its deadlines, jobs without devices left out."""
    from cluster.core.traces import open_rows
    from cluster.core.workload import job_table

    header, rows = open_rows(folder / "chronus_philly_mix1_8000.csv.gz")
    jobs = [dict(zip(header, row, strict=True)) for row in rows]
    jobs = [job for job in jobs if int(job["num_gpu"]) > 0]
    return job_table(
        ids=[job["job_id"] for job in jobs],
        submit_s=[60 * float(job["submit_time"]) for job in jobs],
        devices=[int(job["num_gpu"]) for job in jobs],
        duration_s=[60 * float(job["duration"]) for job in jobs],
        deadline_s=[
            60 * (float(job["submit_time"]) + float(job["expect_time_list"]))
            if job["job_type"] == "strict"
            else math.inf
            for job in jobs
        ],
    )


def policy_table(folder: Path, rounds: int, *, quick: bool) -> list[dict[str, Any]]:
    """Return completion times and wall times of the policies against the reference."""
    from cluster.core.simulator.run import POLICY_NAMES, simulate
    from cluster.core.traces import even_nodes

    tables = {"philly": philly(folder), "chronus": chronus(folder)}
    rows = []
    for (trace, devices), reference in REFERENCE.items():
        skipped = {"conservative", "themis", "edf", "least-slack", "deadline", "fair"} if quick else {"fair"}
        for policy in (name for name in POLICY_NAMES if name not in skipped):
            figures = [simulate(tables[trace], even_nodes(devices), policy).figures() for _ in range(rounds)]
            found, expected = figures[0]["avg_jct_s"], reference.get(policy)
            rows.append(
                {
                    "trace": trace,
                    "gpus": devices,
                    "policy": policy,
                    "avg_jct_s": found,
                    "avg_queue_s": figures[0]["avg_queue_s"],
                    "reference_jct_s": expected,
                    "off_reference": found / expected - 1 if expected else None,
                    "preemptions": figures[0]["preemptions"],
                    "wall_s": statistics.median(row["wall_s"] for row in figures),
                }
            )
    return rows


def deadline_table(folder: Path) -> list[dict[str, Any]]:
    """Return jobs on time with admission and without, on the Chronus trace."""
    from cluster.core.simulator.run import simulate
    from cluster.core.traces import even_nodes

    jobs = chronus(folder)
    best_effort = np.isinf(jobs.deadline_s)
    rows = []
    for devices in (576, 768, 896):
        for policy in ("fifo", "sjf", "edf", "least-slack", "deadline"):
            result = simulate(jobs, even_nodes(devices), policy)
            completion = (result.end_s - result.jobs.submit_s)[best_effort]
            rows.append(
                {
                    "gpus": devices,
                    "policy": policy,
                    "on_time": result.on_time(),
                    "refused": len(result.refused),
                    "late_share_of_admitted": result.deadline_miss_rate(),
                    "best_effort_jct_s": float(completion.mean()),
                    "wall_s": result.wall_s,
                }
            )
    return rows


def placement_table(folder: Path, seeds: int) -> list[dict[str, Any]]:
    """Return the share of devices handed out per placement rule against the published one."""
    from cluster.core.placement.replay import RULES, replay
    from cluster.core.traces.pods import read_pod_nodes, read_pods

    pods = read_pods(folder / "alibaba_openb_pods.csv.gz")
    nodes = read_pod_nodes(folder / "alibaba_openb_nodes.csv.gz")
    rows = []
    for rule in RULES:
        results = [replay(pods, nodes, rule, load=1.3, seed=seed) for seed in range(seeds)]
        found = 100 * statistics.mean(result.allocation["1.3"] for result in results)
        rows.append(
            {
                "policy": rule,
                "allocation_percent": found,
                "published_percent": PUBLISHED_ALLOCATION[rule],
                "difference_points": found - PUBLISHED_ALLOCATION[rule],
                "seeds": seeds,
                "wall_s": statistics.median(result.wall_s for result in results),
            }
        )
    return rows


def scale(folder: Path) -> list[dict[str, Any]]:
    """Return the time to simulate 5,120 jobs of the Sia workloads on 2,048 devices."""
    from cluster.core.simulator.run import simulate
    from cluster.core.traces import even_nodes, open_rows
    from cluster.core.workload import job_table

    header, rows = open_rows(folder / "sia_workloads.csv.gz")
    jobs = [dict(zip(header, row, strict=True)) for row in rows][:5120]
    rng = np.random.default_rng(0)
    table = job_table(
        ids=[str(number) for number in range(len(jobs))],
        submit_s=[float(job["submit_s"]) for job in jobs],
        devices=[int(job["num_replicas"]) for job in jobs],
        # The public workloads carry no run times: log-normal ones with Helios's mean and median stand in.
        duration_s=np.minimum(rng.lognormal(math.log(206), 2.64, len(jobs)), 14 * 86400.0).tolist(),
    )
    found = []
    for policy in ("fifo", "backfill", "srtf", "las"):
        result = simulate(table, even_nodes(2048), policy)
        found.append({"jobs": len(jobs), "gpus": 2048, "policy": policy, "wall_s": result.wall_s})
    return found


def heterogeneous(folder: Path, *, quick: bool) -> list[dict[str, Any]]:
    """Return Gavel's heterogeneity-aware policies against their blind version, on its own generator."""
    from cluster.core.policies.gavel import blind_shares, makespan_shares, max_min_shares
    from cluster.core.simulator.heterogeneous import generate_jobs, simulate_kinds
    from cluster.core.traces import read_throughputs

    throughputs = read_throughputs(folder / "gavel_throughputs_isolated.csv.gz")
    workers = np.array([36, 36, 36])
    batch = generate_jobs(throughputs, 60 if quick else 150, math.inf, np.random.default_rng(0))
    stream = generate_jobs(throughputs, 300 if quick else 2000, 3.9, np.random.default_rng(1))
    aware, blind = (
        simulate_kinds(batch, workers, makespan_shares),
        simulate_kinds(batch, workers, blind_shares),
    )
    rows = [
        {
            "goal": "makespan",
            "jobs": len(batch.steps),
            "aware_s": aware.makespan_s,
            "blind_s": blind.makespan_s,
            "factor": blind.makespan_s / aware.makespan_s,
            "wall_s": aware.wall_s,
        }
    ]
    aware, blind = (
        simulate_kinds(stream, workers, max_min_shares),
        simulate_kinds(stream, workers, blind_shares),
    )
    means = float(aware.completion_s.mean()), float(blind.completion_s.mean())
    rows.append(
        {
            "goal": "jct",
            "jobs": len(stream.steps),
            "aware_s": means[0],
            "blind_s": means[1],
            "factor": means[1] / means[0],
            "wall_s": aware.wall_s,
        }
    )
    return rows


def sharing(folder: Path) -> list[dict[str, Any]]:
    """Return packing by measured pair speeds against the same order without sharing."""
    from cluster.core.simulator.sharing import simulate_sharing
    from cluster.core.traces import even_nodes, read_throughputs
    from cluster.core.workload import job_table

    table = read_throughputs(
        folder / "gavel_throughputs_isolated.csv.gz", folder / "gavel_throughputs_colocated.csv.gz"
    )
    rng = np.random.default_rng(0)
    singles = [job for job in table.job_types() if job[1] == 1 and ("v100", job) in table.alone]
    kinds = [singles[rng.integers(len(singles))] for _ in range(600)]
    jobs = job_table(
        ids=[str(number) for number in range(600)],
        submit_s=np.cumsum(rng.exponential(60.0, 600)).tolist(),
        devices=[1] * 600,
        duration_s=(60.0 * 10.0 ** rng.uniform(1.0, 2.5, 600)).tolist(),
    )
    cluster = even_nodes(64)
    packed = simulate_sharing(jobs, cluster, lambda a, b: table.shared_speeds("v100", kinds[a], kinds[b]))
    alone = simulate_sharing(jobs, cluster, lambda a, b: (0.0, 0.0))
    means = float(packed.completion_s().mean()), float(alone.completion_s().mean())
    return [
        {
            "jobs": 600,
            "gpus": 64,
            "shared_jct_s": means[0],
            "alone_jct_s": means[1],
            "factor": means[1] / means[0],
            "wall_s": packed.wall_s,
        }
    ]


def closed_forms() -> list[dict[str, Any]]:
    """Return the mean wait of M/M/8 first in first out, over five streams, against Erlang C."""
    from cluster.core.simulator.run import simulate
    from cluster.core.traces import even_nodes
    from cluster.core.workload import job_table

    count, servers, load = 20_000, 8, 0.7
    waits = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        jobs = job_table(
            ids=[str(number) for number in range(count)],
            submit_s=np.cumsum(rng.exponential(1.0 / (servers * load), count)).tolist(),
            devices=[1] * count,
            duration_s=rng.exponential(1.0, count).tolist(),
        )
        waits.append(float(simulate(jobs, even_nodes(servers), "fifo").queue_s().mean()))
    expected = erlang_c_wait(servers, load)
    return [{"model": "M/M/8, load 0.7", "wait_s": statistics.mean(waits), "erlang_c_wait_s": expected}]


def erlang_c_wait(servers: int, load: float) -> float:
    """Return the mean wait of M/M/c in units of the mean service time."""
    offered = servers * load
    terms = [offered**k / math.factorial(k) for k in range(servers)]
    queueing = offered**servers / math.factorial(servers) / (1 - load)
    return queueing / (sum(terms) + queueing) / (servers * (1 - load))


def live_decision(rounds: int) -> list[dict[str, Any]]:
    """Return the time of one live decision for 1,000 pending jobs on 10,000 devices, predictions included."""
    from cluster.core.decision import decide
    from cluster.core.policies import policy_by_name

    state = crowded_state()
    rows = []
    for policy in ("fair", "fifo", "las", "backfill"):
        seconds, cpu_seconds = [], []
        for _ in range(rounds + 1):
            begin, cpu_begin = time.perf_counter(), time.process_time()
            decision = decide(state, policy_by_name(policy, 10_000), 0.0)
            seconds.append(time.perf_counter() - begin)
            cpu_seconds.append(time.process_time() - cpu_begin)
        rows.append(
            {
                "policy": policy,
                "pending": 1000,
                "devices": 10_000,
                "starts": len(decision.starts),
                "preemptions": len(decision.preemptions),
                "wall_s": statistics.median(seconds[1:]),
                "cpu_s": statistics.median(cpu_seconds[1:]),
            }
        )
    return rows


def crowded_state() -> "ClusterState":
    """Return 10,000 devices of two kinds, about 4,000 running gangs and 1,000 waiting ones of eight teams."""
    from cluster.core.decision import ClusterState, JobView, NodeView, Slice
    from cluster.core.fairness.quota import TeamQuota
    from cluster.core.requests import gang

    rng = np.random.default_rng(0)
    nodes = tuple(NodeView(f"n{number}", 8, "new" if number < 800 else "old") for number in range(1250))
    jobs: list[JobView] = []
    for node in nodes:
        at = 0
        while at < 8 and rng.random() > 0.05:
            size = min(int(rng.choice([1, 2, 4, 8], p=[0.5, 0.2, 0.2, 0.1])), 8 - at)
            jobs.append(
                JobView(
                    f"r{len(jobs)}",
                    gang(size),
                    submitted_s=-5000.0 - len(jobs),
                    team=f"t{len(jobs) % 8}",
                    user=f"u{len(jobs) % 50}",
                    limit_s=float(rng.integers(3600, 86400)),
                    running=True,
                    started_s=-float(rng.integers(0, 3000)),
                    placement=tuple(Slice(node.name, at + device) for device in range(size)),
                )
            )
            at += size
    for number in range(1000):
        jobs.append(
            JobView(
                f"p{number}",
                gang(int(rng.choice([1, 2, 4, 8, 16, 64], p=[0.5, 0.15, 0.15, 0.1, 0.07, 0.03]))),
                submitted_s=-float(rng.integers(0, 9000)),
                team=f"t{number % 8}",
                user=f"u{number % 50}",
                kinds=[(), ("new",), ("old",)][number % 3],
                job_class=int(rng.integers(0, 3)),
                limit_s=float(rng.integers(600, 86400)),
            )
        )
    quota = {"new": 700_000, "old": 350_000}
    teams = tuple(TeamQuota(f"t{n}", guaranteed=quota, borrow_limit={"new": 300_000}) for n in range(8))
    usage = {f"t{number % 8}/u{number}": float(number) for number in range(50)}
    return ClusterState(nodes, tuple(jobs), teams, usage)
