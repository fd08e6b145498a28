"""Components of the caller's in the family's kernels: config, rules and picker stay the family's."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilekit
import tilekit.compose as tk
from tilekit import MatmulSpec, OwnComponents, OwnRole
from tilekit.errors import TilekitError

TARGETS = ("sm_90a", "sm_100a", "gfx950", pytest.param("cuda", marks=pytest.mark.gpu))


class Checkered:
    """Functions of the caller's: each element times 1 where row and column are both even or odd, else times -1."""

    source = None
    uses_rows = True
    reduces_rows = False

    def bind(self, w: tk.Writer) -> None:
        """Nothing is shared."""

    def rows(self, w: tk.Writer, row: tk.Value, *, apart: int, batch: Any = 0) -> Any:
        """Two rows."""
        return row, row + apart

    def columns(self, w: tk.Writer, column: tk.Value, *, apart: int = 1, batch: Any = 0) -> Any:
        """Two columns."""
        return column, column + apart

    def apply(
        self, w: tk.Writer, value: tk.Value, columns: Any, column: int, rows: Any, row: int, source: Any = None
    ) -> tk.Value:
        """One element."""
        odd = ((columns[column] + rows[row]) & 1) == 1
        return w.select(odd, value * -1.0, value, tk.registers.F32)

    def finish_rows(self, w: tk.Writer, rows: Any, tile: tk.Tile) -> None:
        """Nothing is left."""


class OneCluster(tk.StaticScheduler):
    """A scheduler of the caller's: one cluster computes everything."""

    def schedule(self, call: tk.Call) -> tk.Schedule:
        """As few clusters as there may be."""
        usual = super().schedule(call)
        return tk.Schedule(clusters=1, tiles=usual.tiles)


def shifted(w: tk.Writer, tile: tk.OperandTile, **how: Any) -> tk.TmaLoader:
    """A loader of the caller's: TMA's, which promotes nothing in L2; on AMD chips through registers."""
    if w.target.isa == "gcn":
        return tk.BufferLoader(w, tile, **how)
    return tk.TmaLoader(w, tile, **{**how, "l2_promotion": None})


class Halved:
    """An epilogue of the caller's: half of each element, stored by the threads that hold it."""

    def __init__(self, w: tk.Writer, layout: Any, functions: Any, **how: Any) -> None:
        self._direct = tk.DirectEpilogue(w, layout, tk.Fused(lambda w, x: x * 0.5), **how)

    def prefetch(self, w: tk.Writer) -> None:
        """Nothing is far."""
        self._direct.prefetch(w)

    def initialise(self, w: tk.Writer) -> None:
        """There is no barrier."""
        self._direct.initialise(w)

    def bind(self, w: tk.Writer, group: Any) -> Any:
        """The threads of a warpgroup."""
        return self._direct.bind(w, group)


SEEN: list[str] = []


def counting(w: tk.Writer, kernel: tk.WarpSpecialized) -> Any:
    """A role of the caller's: goes through the same tiles, and notes how many there are."""
    notes = w.parameter("notes", tk.registers.GMEM, lambda call: call.allocate("notes", 4 * call.ctas))
    SEEN.append(w.target.name)

    def body(w: tk.Writer, warp: tk.Value, role: tk.Role) -> None:
        with tk.working_threads(w, warp, role, kernel.cluster):
            tiles = w.variable(tk.registers.U32, 0, "tiles")
            for _ in kernel.scheduler.tiles(w, role):
                tiles.assign(tiles + 1)
            address = (notes + w.widen_multiply(w.cta(), 4)).retyped(tk.registers.GMEM)
            value = w.isa.convert.float_u32(whole=tiles)
            w.isa.memory.store_global_f32(address=address, value=value, valid=tiles > 0)

    return body


AUDIT = tk.RoleEntry("audit", 1, frozenset({"memory", "store", "sync", "wait"}), one_thread=True)


OWN = {
    "functions": OwnComponents(functions=lambda w, **extents: Checkered()),
    "scheduler": OwnComponents(scheduler=lambda w, raster: OneCluster(raster)),
    "loaders": OwnComponents(loader_a=shifted, loader_b=shifted),
    "consumers": OwnComponents(consumers=lambda w: tk.Cooperative()),
    "epilogue": OwnComponents(epilogue=Halved),
    "role": OwnComponents(role=OwnRole(AUDIT, counting)),
}


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", OWN)
def test_own_components(target: str, name: str) -> None:
    """A kernel with a component of the caller's computes what it says, and `explain` names it."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-2, 3, shape).astype(ml_dtypes.bfloat16) for shape in ((300, 64), (64, 264)))
    expected = a.astype("f4") @ b.astype("f4")
    if name == "functions":
        expected[(np.add.outer(np.arange(300), np.arange(264)) & 1) == 1] *= -1
    if name == "epilogue":
        expected *= 0.5
    own = OWN[name]
    if name == "loaders" and target == "gfx950":
        with pytest.raises(TilekitError, match=r"loader of b.*K contiguous.*TK-MM-028"):
            tilekit.matmul(a, b, components=own, target=target)
        b = np.asfortranarray(b)
    result = tilekit.matmul(a, b, components=own, target=target)
    assert (result == expected.astype(ml_dtypes.bfloat16)).all()
    kernel = tilekit.kernel_for(a, b, components=own, target="sm_90a" if target == "cuda" else target)
    assert all(f"{one}, of the caller's" in kernel.explain() for one in own.names)
    assert "own_" in kernel.name
    if name == "role":
        assert kernel.target.name in SEEN
        assert "audit" in kernel.explain()


def test_a_protocol_that_does_not_fit() -> None:
    """What is made lacks something: place, component, protocol and member are named."""
    wrong: dict[str, Any] = {
        "functions": lambda w, **extents: object(),
        "scheduler": lambda w, raster: raster,
        "loader_a": lambda w, tile, **how: tile,
        "consumers": lambda w: None,
        "epilogue": lambda w, layout, functions, **how: layout,
    }
    for name, make in wrong.items():
        with pytest.raises(TilekitError) as caught:
            tilekit.compile(MatmulSpec(components=OwnComponents(**{name: make})))
        assert caught.value.code == "TK-FIT-001"
        assert f"OwnComponents({name}=) makes " in str(caught.value)
    with pytest.raises(TilekitError, match=r"OwnRole\(make=3\).*TK-PART-001"):
        tilekit.compile(MatmulSpec(components=OwnComponents(role=OwnRole(AUDIT, lambda w, kernel: 3))))
    load = tk.RoleEntry("load", 1, frozenset({"wait"}))
    with pytest.raises(TilekitError, match="TK-ROLE-002"):
        tilekit.compile(MatmulSpec(components=OwnComponents(role=OwnRole(load, counting))))
    for wrong_role in ({"entry": "audit", "make": counting}, {"entry": AUDIT, "make": 3}):
        with pytest.raises(TilekitError, match=r"entry|make"):
            OwnRole(**wrong_role)
    with pytest.raises(TilekitError, match="something to call"):
        OwnComponents(scheduler=3)  # type: ignore[arg-type]


def test_what_does_not_go_together() -> None:
    """Functions beside bias, a scheduler beside groups or streamed tiles, a loader of what TMA does not fill."""
    from tilekit import ElementwiseSpec, MatmulConfig

    for keywords in (
        {"components": OWN["functions"], "functions": ElementwiseSpec(activation="relu")},
        {"components": OWN["scheduler"], "groups": "ends"},
        {"components": OWN["loaders"], "a_load": 8},
    ):
        with pytest.raises(TilekitError) as caught:
            MatmulSpec(**keywords)  # type: ignore[arg-type]
        assert caught.value.code == "TK-MM-028"
    problems = MatmulConfig(stream_k=2).problems("sm_90a", MatmulSpec(components=OWN["scheduler"]))
    assert any("nearest: stream_k=0" in problem for problem in problems)


def test_a_scheduler_where_clusters_claim_tiles() -> None:
    """With a scheduler of the caller's none are claimed on sm_100a, whose own claims them, and tiles overlap still."""
    spec = MatmulSpec(components=OWN["scheduler"])
    kernel = tilekit.compile(spec, target="sm_100a")
    assert kernel.config.clc_stages == 0
    large = np.empty((8192, 8192), ml_dtypes.bfloat16)
    picked = tilekit.kernel_for(large, large.T, components=OWN["scheduler"], target="sm_100a").config
    assert (picked.clc_stages, picked.accumulator_stages) == (0, 2)
