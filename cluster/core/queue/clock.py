"""The clock of a queue: the wall clock, or one of a rehearsal that runs faster."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QueueClock:
    """From `since_s` on (Unix seconds) the queue's clock runs `speed` times as fast as the wall's."""

    since_s: float = 0.0
    speed: float = 1.0

    def queue_s(self, wall_s: float) -> float:
        """Return what the queue's clock shows at a time of the wall's."""
        return wall_s if self.speed == 1.0 else self.since_s + (wall_s - self.since_s) * self.speed

    def wall_s(self, queue_s: float) -> float:
        """Return when the wall's clock shows a time of the queue's."""
        return queue_s if self.speed == 1.0 else self.since_s + (queue_s - self.since_s) / self.speed
