"""Keeps a lent device's owner from harm: lending ends by itself where it is measured to cost too much."""

from cluster.core.coordinator import LendingDecision, LendingPolicy, Slowdown, decide_lending


class LendingGuard:
    """Remembers how often lending was stopped, and when; `now_s` is monotonic."""

    def __init__(self, policy: LendingPolicy) -> None:
        self.policy = policy
        self.stops, self.stopped_at_s = 0, 0.0
        self.lending, self.switched_off = True, False

    def judge(self, slowdown: Slowdown | None, now_s: float) -> LendingDecision:
        """Decide, and remember what was decided."""
        decision = decide_lending(
            self.policy,
            slowdown,
            lending=self.lending,
            switched_off=self.switched_off,
            stops=self.stops,
            stopped_at_s=self.stopped_at_s,
            now_s=now_s,
        )
        if decision.action == "stop":
            self.lending = False
            if not self.switched_off:
                self.stops, self.stopped_at_s = self.stops + 1, now_s
        elif decision.action == "resume":
            self.lending = True
        return decision
