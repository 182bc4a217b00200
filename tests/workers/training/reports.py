"""What a rank reports of an iteration."""


def chunk(kind, microbatch, seconds, throttled=0.0):
    return {
        "type": kind, "microbatch": microbatch, "stage": 0, "seconds": 2 * seconds, "cpu_seconds": seconds,
        "throttled_seconds": throttled, "tokens": 100, "sum_squared_lengths": 2500,
    }  # fmt: skip


def report(step, rank, seconds=1.0, epoch=0, loss=None, throttled=0.0):
    """A rank's iteration of two micro-batches; a forward takes one unit, a backward two."""
    chunks = [chunk(k, m, seconds * (1 if k == "F" else 2), throttled) for m in (0, 1) for k in ("F", "B")]
    return {
        "kind": "iteration", "step": step, "epoch": epoch, "plan_rank": rank, "loss": loss, "tokens": 200,
        "started_s": 100.0 * rank, "ended_s": 100.0 * rank + 10 + rank, "chunks": chunks,
        "bubbles": [{"slot": 1, "before": "F1", "seconds": 0.5}],
    }  # fmt: skip
