"""What a verdict can say, and the lives of verdicts and burn-in tests."""

from enum import StrEnum


class VerdictKind(StrEnum):
    """Everything the detector can say."""

    WORKLOAD_NOISE = "workload_noise"
    STAGE_IMBALANCE = "stage_imbalance"
    GLOBAL_SLOWDOWN = "global_slowdown"
    DEVICE_FAIL_SLOW = "device_fail_slow"
    LINK_FAIL_SLOW = "link_fail_slow"
    INTERMITTENT = "intermittent"
    FAIL_STOP = "fail_stop"
    MONITOR_FAULT = "monitor_fault"
    INSUFFICIENT_EVIDENCE = "insufficient_evidence"


# What is broken, as against what is merely worth knowing.
FAULTS = {
    VerdictKind.GLOBAL_SLOWDOWN,
    VerdictKind.DEVICE_FAIL_SLOW,
    VerdictKind.LINK_FAIL_SLOW,
    VerdictKind.INTERMITTENT,
    VerdictKind.FAIL_STOP,
}
# What another layout can mend: the others have no device that could be spared.
ACTIONABLE = {VerdictKind.DEVICE_FAIL_SLOW, VerdictKind.INTERMITTENT, VerdictKind.FAIL_STOP}

# kind -> what people call it
KIND_LABELS: dict[VerdictKind, str] = {
    VerdictKind.WORKLOAD_NOISE: "workload noise",
    VerdictKind.STAGE_IMBALANCE: "stage imbalance",
    VerdictKind.GLOBAL_SLOWDOWN: "global slowdown",
    VerdictKind.DEVICE_FAIL_SLOW: "slow device",
    VerdictKind.LINK_FAIL_SLOW: "slow link",
    VerdictKind.INTERMITTENT: "intermittent device",
    VerdictKind.FAIL_STOP: "stopped device",
    VerdictKind.MONITOR_FAULT: "monitor fault",
    VerdictKind.INSUFFICIENT_EVIDENCE: "insufficient evidence",
}


class VerdictState(StrEnum):
    """An incident goes on until it is cleared; a second onset is a second incident."""

    OPEN = "open"
    CLEARED = "cleared"


VERDICT_MOVES: dict[VerdictState, set[VerdictState]] = {
    VerdictState.OPEN: {VerdictState.CLEARED},
    VerdictState.CLEARED: set(),
}
VERDICT_LOOK: dict[VerdictState, tuple[str, str]] = {
    VerdictState.OPEN: ("open", "bad"),
    VerdictState.CLEARED: ("cleared", "good"),
}


class BurnInState(StrEnum):
    """A suspect device is measured alone before it is used again."""

    RUNNING = "running"
    PASSED = "passed"
    FAILED = "failed"


BURN_IN_LOOK: dict[BurnInState, tuple[str, str]] = {
    BurnInState.RUNNING: ("running", "active"),
    BurnInState.PASSED: ("passed", "good"),
    BurnInState.FAILED: ("failed", "bad"),
}


class DeliveryState(StrEnum):
    """A message of a webhook waits until it is accepted or given up."""

    WAITING = "waiting"
    DELIVERED = "delivered"
    FAILED = "failed"


DELIVERY_LOOK: dict[DeliveryState, tuple[str, str]] = {
    DeliveryState.WAITING: ("waiting", "warning"),
    DeliveryState.DELIVERED: ("delivered", "good"),
    DeliveryState.FAILED: ("given up", "bad"),
}
