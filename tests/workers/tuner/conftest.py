"""What tests of a study's driver look at from inside its process."""

import pytest

from workers.tuner.runner import RayRunner


@pytest.fixture
def actors(monkeypatch) -> dict:
    """The actors of the driver in this process, by device."""
    seen = {}
    real = RayRunner._actor

    def noting(runner, label, device):
        seen[label] = real(runner, label, device)
        return seen[label]

    monkeypatch.setattr(RayRunner, "_actor", noting)
    return seen
