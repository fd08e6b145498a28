"""The peers of the repository, as far as they can be tested without a GPU; each needs its own package."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilekit.bench.entrants import PEERS, load_peers
from tilekit.errors import ArgumentError


def test_peers_that_cannot_load_say_why() -> None:
    """Every file of the folder is an entrant or a reason, and nothing else happens."""
    peers = load_peers(["all"])
    names = {path.stem for path in PEERS.glob("*.py")} - {"__init__"}
    assert {"triton_matmul", "cublaslt", "deepgemm", "quack_gemm"} <= names
    assert set(peers.skipped) <= names
    assert all(reason for reason in peers.skipped.values())
    assert len(peers.skipped) + len({entrant.name for entrant in peers.entrants}) == len(names)


def test_a_peer_that_is_not_there_is_refused() -> None:
    """The error lists the peers there are."""
    with pytest.raises(ArgumentError, match="triton_matmul"):
        load_peers(["trition"])
    with pytest.raises(ArgumentError, match="library"):
        load_peers(["nowhere/peer.py"])


def module(name: str) -> Any:
    """A peer's module, where what it needs is installed."""
    pytest.importorskip("torch")
    from tilekit.bench.entrants import _load

    return _load(name, Path(PEERS / f"{name}.py"))


@pytest.mark.parametrize("element", ["bf16", "fp8e4nv"])
@pytest.mark.parametrize("mapped", [True, False], ids=["mapped", "unmapped"])
def test_the_triton_peer_compiles_for_hopper(element: str, mapped: bool) -> None:
    """Triton, where it is installed, turns the large tile into wgmma and TMA instructions for sm_90."""
    triton = pytest.importorskip("triton")
    peer = module("triton_matmul")
    backend: Any = pytest.importorskip("triton.backends.compiler")
    config = peer.Config(128, 256, 128, 8, 4, halves=True)
    fixed = peer.constants(config, 2 if element == "bf16" else 1, a_rows=True, b_rows=False, out_mapped=mapped)
    signature = {
        "a_map": f"tensordesc<{element}[128, {fixed['TILE_K']}]>",
        "b_map": f"tensordesc<{element}[256, {fixed['TILE_K']}]>",
        "out_map": "tensordesc<bf16[128, 128]>" if mapped else "constexpr",
        "out_pointer": "*bf16",
        **dict.fromkeys("mnk", "i32"),
        **dict.fromkeys(fixed, "constexpr"),
    }
    constants = fixed if mapped else {**fixed, "out_map": None}
    source = triton.compiler.ASTSource(peer.kernel, signature=signature, constexprs=constants)
    options = {"num_warps": config.warps, "num_stages": config.stages}
    built = triton.compile(source, target=backend.GPUTarget("cuda", 90, 32), options=options)
    assert "wgmma.mma_async" in built.asm["ptx"]
    assert ("cp.async.bulk.tensor.2d.global" in built.asm["ptx"]) == mapped
    assert built.metadata.shared <= 232448


def test_the_triton_peer_tries_at_most_eight_configs() -> None:
    """Every number of rows has configs to try, and few enough; small products never get tiles of 256 rows."""
    pytest.importorskip("triton")
    peer = module("triton_matmul")
    for rows in (1, 16, 17, 64, 65, 128, 4096):
        configs = peer.configs_for(rows)
        assert 1 <= len(configs) <= 8
        assert rows > 64 or max(config.m for config in configs) <= 64


class FakeArray:
    """What the cuBLASLt peer reads of a tensor."""

    def __init__(self, array: Any) -> None:
        self.shape = array.shape
        self._strides = tuple(stride // array.itemsize for stride in array.strides)

    def stride(self) -> tuple[int, ...]:
        return self._strides


@pytest.mark.parametrize("a_rows", [True, False])
@pytest.mark.parametrize("b_rows", [True, False])
def test_cublaslt_sees_the_transposed_product(a_rows: bool, b_rows: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read by columns as the library reads them, the operands described give the transposed result, whatever the
    layouts and pitches."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: type("Library", (), {"__getattr__": lambda s, n: lambda *a: 0})())
    for maker in ("empty", "ones"):
        monkeypatch.setattr(torch, maker, lambda *a, **k: None)
    peer = module("cublaslt")
    random = np.random.default_rng(0)

    def matrix(height: int, width: int, rows: bool) -> Any:
        memory = random.standard_normal((height, width + 3) if rows else (width, height + 3))
        return memory[:, :width] if rows else memory[:, :height].T

    def by_columns(array: Any, how: Any) -> Any:
        flat = np.lib.stride_tricks.as_strided(
            array, (how.rows, how.columns), (array.itemsize, how.pitch * array.itemsize)
        )
        return flat.T if how.transposed else flat

    a, b = matrix(5, 7, a_rows), matrix(7, 4, b_rows)
    first, second = (by_columns(x, peer.stored(FakeArray(x))) for x in (b, a))
    np.testing.assert_allclose(first @ second, (a @ b).T)
    out = np.zeros((5, 4))
    described = peer.stored(FakeArray(out))
    assert (described.rows, described.columns, described.pitch, described.transposed) == (4, 5, 4, False)
