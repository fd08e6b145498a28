"""The case lists and the Triton peer of the repository's benchmarks folder."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import typer

from tilekit.bench.workload import MatmulWorkload


@pytest.fixture(autouse=True)
def repository(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the benchmarks package importable, as it is from the repository's root."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2])


def test_every_listed_shape_is_a_shape() -> None:
    """All suites parse, no shape is listed twice within one, and `all` holds every other suite but the smoke test."""
    cases: Any = importlib.import_module("benchmarks.cases")
    for shapes in cases.SUITES.values():
        assert len({MatmulWorkload.parse(shape) for shape in shapes}) == len(shapes)
    listed = {shape for name, shapes in cases.SUITES.items() if name not in ("smoke", "all") for shape in shapes}
    assert listed == set(cases.SUITES["all"])


def test_the_triton_peer_compiles_for_hopper() -> None:
    """Triton, where it is installed, turns the peer into wgmma and TMA instructions for sm_90."""
    triton = pytest.importorskip("triton")
    pytest.importorskip("torch")
    peer: Any = importlib.import_module("benchmarks.peers.triton_matmul")
    backend: Any = importlib.import_module("triton.backends.compiler")
    compiler: Any = importlib.import_module("triton.compiler")
    maps = {
        "a_map": "tensordesc<bf16[64, 64]>",
        "b_map": "tensordesc<bf16[64, 64]>",
        "out_map": "tensordesc<bf16[64, 64]>",
    }
    constants = {"A_ROWS": True, "B_ROWS": False, "TILE_M": 64, "TILE_N": 64, "TILE_K": 64, "GROUP": 8}
    signature = {**maps, "m": "i32", "n": "i32", "k": "i32", **dict.fromkeys(constants, "constexpr")}
    source = compiler.ASTSource(peer._kernel, signature=signature, constexprs=constants)
    built = triton.compile(source, target=backend.GPUTarget("cuda", 90, 32))
    assert "wgmma.mma_async" in built.asm["ptx"]
    assert "cp.async.bulk.tensor" in built.asm["ptx"]


def test_the_command_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    """`python -m benchmarks.matmul` refuses an unknown suite, listing those there are, before it asks for a GPU."""
    command: Any = importlib.import_module("benchmarks.matmul")
    with pytest.raises(typer.Exit) as caught:
        command.main(suite=["cubes"])
    assert caught.value.exit_code == 2
    assert "squares" in capsys.readouterr().err
