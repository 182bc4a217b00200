"""What a fused step costs: measured at a few sizes, interpolated between them, extrapolated beyond.

Memory grows linearly with the number of fused trials (Hydro, section 5.3: profiles at F = 1 and F = 2), time
does not, so it is probed at more sizes. Before a shape is profiled, its cost is a stated guess.
"""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PROBED_SIZES = (1, 2, 8, 32)
MEMORY_SHARE = 0.9  # of the free memory a container may plan with
FUSION_GAIN = 1.05  # below this speed-up per trial, trials run one by one
SATURATION = 0.03  # the smallest size within this share of the best rate is taken
EXTRAPOLATED = 4
GUESSED_STEP_S = {1: 1.0e-3, 32: 6.0e-3}


@dataclass(frozen=True)
class ShapeProfile:
    """Measurements of one shape: seconds of a training step and bytes, by number of fused trials."""

    shape: str
    batch_size: int
    steps_per_epoch: int
    step_s: Mapping[int, float]
    bytes: Mapping[int, int] = field(default_factory=dict)
    free_bytes: int | None = None
    fusable: bool = True
    reason: str | None = None

    def seconds(self, size: int) -> float:
        """Return the seconds of one training step of `size` fused trials."""
        sizes = sorted(self.step_s)
        if size in self.step_s:
            return self.step_s[size]
        at = bisect_left(sizes, size)
        if len(sizes) == 1 or at == 0:
            return self.step_s[sizes[0]] * size / sizes[0]
        low, high = (sizes[at - 1], sizes[at]) if at < len(sizes) else (sizes[-2], sizes[-1])
        slope = max((self.step_s[high] - self.step_s[low]) / (high - low), 0.0)
        return self.step_s[low] + slope * (size - low)

    @property
    def memory_limit(self) -> int | None:
        """The most trials that fit the device's memory; None where it was not measured."""
        line = self._memory_line()
        if line is None or self.free_bytes is None:
            return None
        fixed, each = line
        return max(1, int((self.free_bytes * MEMORY_SHARE - fixed) / each))

    def predicted_bytes(self, size: int) -> int | None:
        """Return the memory of a container of `size` trials by the linear model."""
        line = self._memory_line()
        return None if line is None else round(line[0] + line[1] * size)

    def _memory_line(self) -> tuple[float, float] | None:
        """Fixed bytes and bytes per trial, from the two smallest fused sizes.

        A trial alone is a plain model, laid out otherwise; it counts only where there is nothing else.
        """
        sizes = sorted(self.bytes)
        if len(sizes) < 2:
            return None
        low, high = sizes[-2:] if len(sizes) == 2 else sizes[1:3]
        each = (self.bytes[high] - self.bytes[low]) / (high - low)
        if each <= 0:
            return 0.0, self.bytes[high] / high
        return self.bytes[low] - low * each, each

    @property
    def best_size(self) -> int:
        """The size with the best measured rate per trial; 1 where fusion does not pay."""
        if not self.fusable:
            return 1
        rate = {size: self.step_s[size] / size for size in self.step_s}
        best = min(rate.values())
        if rate.get(1, self.seconds(1)) < best * FUSION_GAIN:
            return 1
        return min(size for size in rate if rate[size] <= best * (1 + SATURATION))

    @property
    def speedup(self) -> float:
        """How many times faster per trial the best size is than one trial alone."""
        return self.seconds(1) * self.best_size / self.seconds(self.best_size)

    def to_json(self) -> dict[str, Any]:
        """Return the measurements as plain data."""
        return {
            "shape": self.shape,
            "batch_size": self.batch_size,
            "steps_per_epoch": self.steps_per_epoch,
            "step_s": {str(size): seconds for size, seconds in self.step_s.items()},
            "bytes": {str(size): count for size, count in self.bytes.items()},
            "free_bytes": self.free_bytes,
            "fusable": self.fusable,
            "reason": self.reason,
        }


def profile_from_json(document: Mapping[str, Any]) -> ShapeProfile:
    """Return the profile that `ShapeProfile.to_json` wrote."""
    return ShapeProfile(
        shape=document["shape"],
        batch_size=document["batch_size"],
        steps_per_epoch=document["steps_per_epoch"],
        step_s={int(size): seconds for size, seconds in document["step_s"].items()},
        bytes={int(size): count for size, count in document["bytes"].items()},
        free_bytes=document["free_bytes"],
        fusable=document["fusable"],
        reason=document["reason"],
    )


def guessed_profile(shape: str, batch_size: int, samples: int) -> ShapeProfile:
    """Return a stand-in for a shape that nobody has measured yet; its cost grows with the batch."""
    scale = 0.5 + batch_size / 128
    steps = max(1, -(-samples // batch_size))
    return ShapeProfile(shape, batch_size, steps, {f: s * scale for f, s in GUESSED_STEP_S.items()})


def size_limit(profile: ShapeProfile, fusion: str | int) -> int:
    """Return how many trials of this shape one container takes under `fusion` (auto, off or a number)."""
    if fusion == "off" or not profile.fusable:
        return 1
    memory = profile.memory_limit
    wanted = fusion if isinstance(fusion, int) else _auto_size(profile)
    return max(1, min(wanted, memory) if memory is not None else wanted)


def _auto_size(profile: ShapeProfile) -> int:
    """The best measured size; where the largest probe was still the best, what it promises is believed on."""
    best = profile.best_size
    return best * EXTRAPOLATED if best == max(profile.step_s) and best > 1 else best
