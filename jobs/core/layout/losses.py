"""Where the speed of a cluster goes under a layout: how much works, and what each real limit takes."""

from jobs.core.layout.costs import group_rate, iteration_time, replica_time, replica_times
from jobs.core.layout.instance import Instance, Layout

USEFUL = "useful"
EFFICIENCY = "tensor_parallel"
SLOWEST = "slowest_member"
UNEVEN = "uneven_stages"
FILL = "pipeline_fill"
EARLY = "early_replicas"
IDLE = "idle_devices"
TERMS = (USEFUL, EFFICIENCY, SLOWEST, UNEVEN, FILL, EARLY, IDLE)


def losses(instance: Instance, layout: Layout) -> dict[str, float]:
    """Shares of the living devices' speed over one iteration, by `TERMS`; together 1.

    `useful` computes layers at the speed of lone devices; `tensor_parallel` is lost to groups as such,
    `slowest_member` waits within groups, `uneven_stages` for the busiest stage (layers are whole),
    `pipeline_fill` while the pipeline fills, drains or stalls, `early_replicas` for the last replica
    (micro-batches are whole), and `idle_devices` belong to no group.
    """
    time = iteration_time(instance, layout)
    used = layout.devices()
    found = dict.fromkeys(TERMS, 0.0)
    found[IDLE] = time * sum(device.speed for device in instance.living if device.id not in used)
    for replica in layout.replicas:
        ending = replica_time(instance, replica)
        stages = [sum(row) for row in zip(*replica_times(instance, replica), strict=True)]
        busiest = max(stages)
        for stage, stage_s in zip(replica.stages, stages, strict=True):
            devices = [instance.device(name) for name in stage.devices]
            speed = sum(device.speed for device in devices)
            even = len(devices) * min(device.speed for device in devices)
            rate = group_rate(instance, devices)
            busy = replica.microbatches * stage_s
            found[USEFUL] += busy * rate
            found[EFFICIENCY] += busy * (even - rate)
            found[SLOWEST] += busy * (speed - even)
            found[UNEVEN] += replica.microbatches * (busiest - stage_s) * speed
            found[FILL] += (ending - replica.microbatches * busiest) * speed
            found[EARLY] += (time - ending) * speed
    whole = time * sum(device.speed for device in instance.living)
    return {term: value / whole for term, value in found.items()}
