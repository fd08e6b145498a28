"""The emulator stands on its own: its folder, NumPy and ml_dtypes are all it takes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import tilekit.emulator

FOLDER = Path(tilekit.emulator.__file__).parent
TEXT = Path(__file__).parent / "ptx" / "corpus" / "ptx" / "triton" / "add.sm_90a.ptx"
PROGRAM = """
import sys
from pathlib import Path
import numpy as np
from tilekit.emulator import Device
from tilekit.emulator.ptx.lint.lint import lint

text = Path(sys.argv[1]).read_text()
assert lint(text) == []
x, z = np.arange(300, dtype=np.float32), np.zeros(300, np.float32)
kernel = Device("sm_90a").load(text)["add"]
arguments = [x, x, z, np.int32(300), None, None]
assert kernel.launch(2, 128, arguments, statistics=True, timeline="trace.json").clean
assert (z == 2 * x).all()
assert kernel.explore(2, 2, 128, arguments).failure is None
with kernel.debug(2, 128, arguments):
    pass
roots = {name.partition(".")[0] for name, module in sys.modules.items() if getattr(module, "__file__", None)}
print(*sorted(name for name in roots - sys.stdlib_module_names if not name.startswith("_")))
print(*(name for name in sys.modules if name.startswith("tilekit.") and not name.startswith("tilekit.emulator")))
"""


def test_alone(tmp_path: Path) -> None:
    """A copy of the folder launches, explores, debugs, times and lints a kernel, with nothing else of tilekit there."""
    shutil.copytree(FOLDER, tmp_path / "tilekit" / "emulator", ignore=shutil.ignore_patterns("__pycache__", ".*"))
    (tmp_path / "tilekit" / "__init__.py").touch()
    command = [sys.executable, "-c", PROGRAM, str(TEXT)]
    done = subprocess.run(
        command, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["ml_dtypes numpy tilekit", ""]
