"""The declared dependencies, their reasons, and the lock files."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
RUNNING, DEVELOPMENT, BENCHMARKS = PROJECT["dependencies"], EXTRAS["dev"], EXTRAS["bench"]
ADVICE = "run `make lock`"


def named(requirement: str) -> str:
    parsed = Requirement(requirement)
    extras = f"[{','.join(sorted(parsed.extras))}]" if parsed.extras else ""
    return canonicalize_name(parsed.name) + extras


def pinned(lock: str) -> dict[str, str]:
    lines = [
        line for line in (ROOT / lock).read_text().splitlines() if line and not line.lstrip().startswith("#")
    ]
    return dict(line.split("==") for line in lines)


@pytest.mark.parametrize(
    ("heading", "declared"),
    [("Running", RUNNING), ("Development", DEVELOPMENT), ("Benchmarks", BENCHMARKS)],
)
def test_every_direct_dependency_has_a_reason_and_no_other_is_listed(
    heading: str, declared: list[str]
) -> None:
    section = (ROOT / "docs" / "dependencies.md").read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `([^`]+)` \| (.+) \|$", section, re.MULTILINE)
    assert sorted(named(name) for name, _ in rows) == sorted(named(entry) for entry in declared)
    assert all(len(reason) > 5 for _, reason in rows)


@pytest.mark.parametrize(
    ("lock", "declared"),
    [("requirements.lock", RUNNING), ("requirements-dev.lock", RUNNING + DEVELOPMENT + BENCHMARKS)],
)
def test_every_direct_dependency_is_pinned_within_its_bounds(lock: str, declared: list[str]) -> None:
    pins = pinned(lock)
    for entry in map(Requirement, declared):
        assert entry.specifier.contains(pins[canonicalize_name(entry.name)]), f"{entry}: {ADVICE}"


def test_both_locks_agree() -> None:
    everything = pinned("requirements-dev.lock")
    assert {name: everything.get(name) for name in pinned("requirements.lock")} == pinned("requirements.lock")


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-dev.lock"])
def test_a_lock_fits_every_machine(lock: str) -> None:
    """No build of one machine, no address of an index, no CUDA packages: PyTorch names its own."""
    pins = pinned(lock)
    assert pins["torch"] == "2.13.0"
    assert [name for name in pins if name.startswith(("nvidia-", "triton")) and name != "nvidia-ml-py"] == []
    assert [version for version in pins.values() if not re.fullmatch(r"[0-9a-z.]+", version)] == []
