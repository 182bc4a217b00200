"""The migration guide: its two scripts are those of the guide, and the Forebay form runs as it stands."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SCRIPTS = ROOT / "examples" / "from-ray-tune"


@pytest.mark.parametrize("name", ["ray_tune_digits.py", "forebay_digits.py"])
def test_the_guide_shows_the_script_that_is_there(name: str) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "from-ray-tune.md").read_text(), re.DOTALL)
    assert (SCRIPTS / name).read_text() in blocks


def test_the_forebay_form_finds_a_full_width_model(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPTS / "forebay_digits.py"), "4"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    match = re.fullmatch(r"(\{.*\}) ([\d.]+)", done.stdout.strip().splitlines()[-1])
    assert match is not None, done.stdout
    assert set(ast.literal_eval(match[1])) == {"lr", "momentum", "batch_size"}
    assert float(match[2]) > 0.8
