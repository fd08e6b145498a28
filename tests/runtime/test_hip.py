"""The HIP runtime through hip-python, over a double of ROCm's library that hip-python really loads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runtime.hip_double.double import build
from tests.runtime.hip_double.emulated_scenarios import SCENARIOS as EMULATED
from tests.runtime.hip_double.matmul_scenarios import SCENARIOS as MATMULS
from tests.runtime.hip_double.scenarios import SCENARIOS

pytest.importorskip("hip")


@pytest.fixture(scope="module")
def rocm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ROCm installation whose runtime is the double."""
    return build(tmp_path_factory.mktemp("rocm"))


def child(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own, which looks for ROCm where the environment says."""
    folders = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, **folders, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize("name", SCENARIOS)
def test_with_a_runtime(name: str, rocm: Path) -> None:
    """What the scenario of that name says of itself."""
    answer = child("-m", "tests.runtime.hip_double.scenarios", name, ROCM_PATH=str(rocm))
    assert answer.returncode == 0, answer.stderr[-3000:]


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize("name", EMULATED)
def test_with_an_emulated_gpu(name: str, rocm: Path) -> None:
    """What the scenario of that name says of itself: launches are executed."""
    answer = child("-m", "tests.runtime.hip_double.emulated_scenarios", name, ROCM_PATH=str(rocm))
    assert answer.returncode == 0, answer.stderr[-3000:]


@pytest.mark.parametrize("name", MATMULS)
def test_matmuls_on_an_emulated_gpu(name: str, rocm: Path, tmp_path: Path) -> None:
    """What the scenario of that name says of itself: `tilekit.matmul` launches through HIP."""
    answer = child(
        "-m",
        "tests.runtime.hip_double.matmul_scenarios",
        name,
        ROCM_PATH=str(rocm),
        TILEKIT_CACHE_DIR=str(tmp_path),
    )
    assert answer.returncode == 0, answer.stderr[-3000:]


NO_RUNTIME = """
from tilekit.errors import HipError
from tilekit.runtime import hip
assert "no ROCm runtime on this machine" in hip.why_unavailable()
try:
    hip.devices()
except HipError as error:
    assert error.code == "TK-HIP-003" and "libamdhip64.so" in error.message and "ROCM_PATH" in error.message
else:
    raise SystemExit("there are devices")
"""

NO_BINDINGS = """
import sys
sys.modules["hip"] = None
from tilekit.errors import HipError
from tilekit.runtime import hip
try:
    hip.devices()
except HipError as error:
    assert error.code == "TK-HIP-002" and "pip install 'tilekit-gpu[hip]'" in error.message
else:
    raise SystemExit("there are devices")
"""


@pytest.mark.parametrize("script", [NO_RUNTIME, NO_BINDINGS], ids=["no ROCm", "no hip-python"])
def test_without_a_runtime_there_is_one_clear_error(script: str, tmp_path: Path) -> None:
    """Neither ROCm nor hip-python is needed to ask; what is missing is named with what to do."""
    answer = child("-c", script, ROCM_PATH=str(tmp_path))
    assert answer.returncode == 0, answer.stderr[-3000:]
