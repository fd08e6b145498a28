"""Fixtures for the emulator: the real assembler."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest
from cuda.pathfinder import find_nvidia_binary_utility


@pytest.fixture(scope="session")
def assemble(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], None]:
    """Assemble PTX with the real ptxas, so that what the emulator runs is known to be PTX."""
    ptxas = find_nvidia_binary_utility("ptxas")
    if ptxas is None:
        pytest.skip("ptxas is not installed")
    folder = tmp_path_factory.mktemp("ptxas")

    def run(text: str) -> None:
        source = folder / "kernel.ptx"
        source.write_text(text)
        target = next(line.split()[1] for line in text.splitlines() if line.startswith(".target"))
        command = [ptxas, f"-arch={target}", "-o", str(folder / "kernel.cubin"), str(source)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stdout + result.stderr

    return run
