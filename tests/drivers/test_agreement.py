"""What a driver compares of its components: for every op, and only what components say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tilekit.compose as tk
from tilekit.assembly.errors import TraceError
from tilekit.drivers.agreement import check_agreement

OPS: dict[str, tuple[str, Callable[..., Any]]] = {
    "wgmma": ("sm_90a", lambda a, b: tk.Wgmma(a, b, warpgroups=1)),
    "tcgen05": ("sm_100a", lambda a, b: tk.Tcgen05(a, b, group=1)),
    "mma_sync": ("sm_90a", lambda a, b: tk.MmaSync(a, b, warps=4)),
    "mfma": ("gfx942", lambda a, b: tk.Mfma(a, b, waves=4)),
}


def parts(target: str, raster: tuple[int, int] = (128, 128)) -> tuple[dict[str, Any], Any, Any]:
    """Components but for the op, and the tiles of A and B."""
    w = tk.Writer("met", target=target, threads=256)
    position, k = tk.Cluster.read(w, 1, 1), w.constant(tk.registers.U32, 64)
    a, b = (tk.OperandTile(name, tk.BF16, 128, "k") for name in "ab")
    payload = tk.StandardPayload(a, b)
    load = tk.Role("load", range(4), frozenset({"load", "sync", "wait", "memory", "store"}))
    loads = (tk.BufferLoader(w, t, role=load) if target == "gfx942" else tk.TmaLoader(w, t) for t in (a, b))
    loader = tk.StandardLoader(w, *loads, payload.allocate(w.shared, "inputs", 2), position)
    layout = OPS["mfma" if target == "gfx942" else "wgmma"][1](a, b).layout
    functions = tk.Elementwise(w, tk.ElementwiseSpec(), columns=k, precise=False)
    found = {
        "payload": payload,
        "loader": loader,
        "scheduler": tk.StaticScheduler(
            tk.RasterOrder(w, tile_m=raster[0], tile_n=raster[1], cluster=position, k=k, k_block=payload.k)
        ),
        "epilogue": tk.DirectEpilogue(w, layout, functions, out=tk.BF16, rows=k, columns=k),
    }
    return found, a, b


@pytest.mark.parametrize("name", OPS)
def test_every_op(name: str) -> None:
    """Operands in their places are taken; exchanged, the one in A's place is named."""
    target, op = OPS[name]
    found, a, b = parts(target)
    check_agreement("Driver", op=op(a, b), **found)
    with pytest.raises(TraceError, match=r"\(a='b'\); legal: .* along rows .* 'b' is along columns; nearest: 'a'"):
        check_agreement("Driver", op=op(b, a), **found)


@pytest.mark.parametrize("name", OPS)
def test_tiles_of_other_extents(name: str) -> None:
    """Of every op, with how wide its tiles are."""
    target, op = OPS[name]
    found, a, b = parts(target, (128, 64))
    with pytest.raises(TraceError, match=r"Driver's raster\(tile_n=64\); legal: 128, the columns .*nearest: 128"):
        check_agreement("Driver", op=op(a, b), **found)


class Halves(tk.StaticScheduler):
    """Tiles that one's own class cuts from those of a raster."""

    def tiles(self, w: tk.Writer, role: tk.Role) -> Iterator[tk.Tile]:
        """Whatever these are."""
        yield from super().tiles(w, role)


class Turned(tk.AlongColumns):
    """Loads by something else than the tile's column."""

    def first(self, tile: tk.Tile, offset: Any) -> Any:
        """By its row."""
        return tile.row


class Twice(tk.Wgmma):
    """Multiplies in a way of its own."""

    def bind(self, w: tk.Writer, tiles: Any, group: Any) -> Any:
        """Which may read operands of any side, and any part of a stage."""
        return super().bind(w, tiles, group)


def test_what_a_class_derived_from_one_does_is_not_known() -> None:
    """Another `tiles` may cut those of the raster, and another `first` turn to another side."""
    found, a, b = parts("sm_90a", (128, 256))
    op = tk.Wgmma(a, b, warpgroups=1)
    check_agreement("Driver", op=op, **{**found, "scheduler": Halves(found["scheduler"].order)})
    check_agreement("Driver", op=Twice(b, a, warpgroups=1), **found)
    w = tk.Writer("met", target="sm_90a", threads=256)
    tiles = found["payload"].allocate(w.shared, "inputs", 2)
    assert tk.PayloadLoader([Turned(tk.TmaLoader(w, a)), tk.AlongColumns(tk.TmaLoader(w, b))], tiles).sides == {
        "b": "columns"
    }
