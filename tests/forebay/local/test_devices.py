"""Device processes: what a forked one inherits."""

import subprocess
import sys

LOADED = """
import sys
from forebay.local.devices import DeviceProcess
device = DeviceProcess("cpu:0", None, 1, can_fork=True)
before = "tuning.core.hydro.fusing" in sys.modules
device.start()
device.stop()
print(before, "tuning.core.hydro.fusing" in sys.modules)
"""


def test_a_forked_device_inherits_all_of_hydro() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
