"""Tests that share a platform take turns: pytest-xdist must keep their group on one worker."""

import os

import pytest

pytestmark = pytest.mark.xdist_group("platform")


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="nothing runs in parallel here")
def test_a_group_stays_together(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("loadgroup"):
        assert request.node.nodeid.endswith("@platform")
