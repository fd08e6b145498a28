"""A stage may hold any tiles, each with a loader of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilekit.arrays import view_of
from tilekit.assembly.errors import TraceError
from tilekit.assembly.shared import SharedArray
from tilekit.assembly.writer import Writer
from tilekit.dtypes import BF16
from tilekit.kernels.matmul import compiled, compose, config
from tilekit.kernels.matmul.kernel import trace
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import SM_90A
from tilekit.tile_io.payload_loader import PayloadLoader, StandardLoader
from tilekit.tile_io.tma import BoundTmaLoader, TmaLoader, TmaTile
from tilekit.tile_pipeline.payload import Payload, StandardPayload
from tilekit.tiles.operand import OperandTile
from tilekit.tiles.tile import Tile

CONFIG = MatmulConfig(tile=(64, 64), cluster=(1, 1), consumers=1, stages=3)


@dataclass(frozen=True)
class Witness:
    """A third tile of a stage: the k-block's corner of A again, by coordinates of its own."""

    loader: TmaLoader
    name: str = "witness"
    prefetches: bool = False

    def prefetch(self, w: Writer) -> None:
        """The map is A's, which is prefetched."""

    def bind(self, w: Writer, stages: SharedArray) -> BoundWitness:
        """By A's tensor map, to another place."""
        return BoundWitness(self.loader.bind(w, stages, None))


@dataclass(frozen=True)
class BoundWitness:
    """A `Witness` in a role."""

    loader: BoundTmaLoader
    writer: None = None

    def at(self, w: Writer, tile: Tile) -> TmaTile:
        """Always the tile's rows, of batch 0."""
        return self.loader.at(w, tile.row, 0, tile.k_first)


def test_a_third_tile_is_a_loader_and_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage with a third tile is full when all three have landed; the product is exact and nothing is found."""
    third: list[Any] = []

    class Three(StandardPayload):
        def __init__(self, a: OperandTile, b: OperandTile, **options: Any) -> None:
            super().__init__(a, b, **options)
            Payload.__init__(self, (a, b, replace(a, name="witness")), k=a.k)

    def loading(w: Writer, a: Any, b: Any, tiles: Any, cluster: Any, _: Any) -> PayloadLoader:
        both = StandardLoader(w, a, b, tiles, cluster)
        third.append(Witness(a))
        return PayloadLoader((*both._loaders, third[0]), tiles)

    monkeypatch.setattr(config, "_payload", Three)
    monkeypatch.setattr(compose, "StandardLoader", loading)
    kernel = compiled.MatmulKernel(MatmulSpec(), CONFIG, SM_90A)
    assert {array.name for array in kernel.text.shared} >= {"inputs.a", "inputs.b", "inputs.witness"}
    rng = np.random.default_rng(5)
    a, b = (rng.integers(-3, 4, shape).astype(ml_dtypes.bfloat16) for shape in ((130, 328), (72, 328)))
    launch = kernel.bind(a, b.T, seed=2)
    expected = (a.astype(np.float32) @ b.astype(np.float32).T).astype(view_of(a).dtype.numpy)
    assert (launch() == expected).all()
    assert launch.report.clean
    assert third


class _Copies:
    """Groups copies in a way of its own."""


@dataclass(frozen=True)
class _Loader:
    """Loads one tile by threads."""

    name: str
    writer: Any
    prefetches: bool = False

    def prefetch(self, w: Writer) -> None:
        """Nothing."""

    def at(self, w: Writer, tile: Any) -> Any:
        """Nothing is copied."""

    def bind(self, w: Writer, stages: SharedArray) -> _Loader:
        """Itself."""
        return self


def test_two_ways_to_group_copies_exclude_each_other() -> None:
    """A role's threads have one group open: loaders that group differently are named, with what to change."""

    class Other(_Copies):
        pass

    w = Writer("pair", target="sm_90a", threads=32)
    tiles = StandardPayload(*(OperandTile(name, BF16, 64, "k") for name in "ab")).allocate(w.shared, "inputs", 2)
    loader: Any = PayloadLoader([_Loader("a", _Copies()), _Loader("b", Other())], tiles)  # type: ignore[list-item]
    with pytest.raises(TraceError, match="TK-TRACE-011") as caught:
        loader.bind(w)
    assert "a group theirs by _Copies and b group theirs by Other" in str(caught.value)


def test_what_threads_copy_is_not_prefetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bringing an operand into L2 that threads copy is refused when the kernel is traced, not skipped."""
    monkeypatch.setattr(MatmulConfig, "check", lambda self, target, spec: None)
    spec = MatmulSpec(a_load=2, b_load=2)
    with pytest.raises(TraceError, match=r"take prefetch=0.*TK-TRACE-012"):
        trace(spec, MatmulConfig(tile=(64, 64), cluster=(1, 1), consumers=1, prefetch=2), SM_90A)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("a", "bb"), r"_Loader is for tile 'bb', but the tiles of a stage are 'a', 'b'; nearest: 'b'"),
        (("a", 3), r"_Loader is for tile 3, but the tiles of a stage are 'a', 'b'"),
        (("a", "a"), r"tile 'a' of a stage is loaded by _Loader and by _Loader"),
    ],
)
def test_each_tile_has_one_loader(names: tuple[Any, ...], message: str) -> None:
    """A loader of a tile that a stage does not hold, or that has one already, is refused with both names."""
    w = Writer("pair", target="sm_90a", threads=32)
    tiles = StandardPayload(*(OperandTile(name, BF16, 64, "k") for name in "ab")).allocate(w.shared, "inputs", 2)
    with pytest.raises(TraceError, match=f"{message}.*TK-TRACE-018"):
        PayloadLoader([_Loader(name, None) for name in names], tiles)  # type: ignore[misc]


def test_a_prefetch_is_of_a_tile_that_is_loaded() -> None:
    """Of another one the message says which there are."""
    w = Writer("pair", target="sm_90a", threads=32)
    tiles = StandardPayload(*(OperandTile(name, BF16, 64, "k") for name in "ab")).allocate(w.shared, "inputs", 2)
    loader = PayloadLoader([_Loader("a", None)], tiles)  # type: ignore[list-item]
    tile: Any = None
    with pytest.raises(TraceError, match=r"a prefetch is for tile 'b'.*'a'.*TK-TRACE-018"):
        loader.tile_at(w, "b", tile)
