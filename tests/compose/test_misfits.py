"""Components of one's own that do not fit: what is called otherwise than it can be, and what returns something else."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, partialmethod
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tilekit
import tilekit.compose as tk
from tilekit import OwnComponents, OwnRole
from tilekit.errors import TilekitError

TILE, STAGES = 64, 3
PLAN = tk.WarpPlan.register_accumulators(tk.target("sm_90a"), consumers=1, accumulators=TILE // 2)
LOAD, MMA = PLAN["load"], PLAN["mma"]


class Plain:
    """A fusion that leaves elements as they are."""

    source = None
    uses_rows = False
    reduces_rows = False

    def bind(self, w: tk.Writer) -> None:
        """Nothing is shared."""

    def rows(self, w: tk.Writer, row: Any, *, apart: int, batch: Any = 0) -> None:
        """Rows need nothing."""

    def columns(self, w: tk.Writer, column: Any, *, apart: int = 1, batch: Any = 0) -> list[int]:
        """Nor do columns."""
        return [0, 0]

    def apply(self, w: Any, value: Any, columns: Any, column: int, rows: Any, row: int, source: Any = None) -> Any:
        """The element."""
        return value

    def finish_rows(self, w: tk.Writer, rows: Any, tile: Any) -> None:
        """Nothing is left."""


class Loader:
    """Another's loader."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.tile = inner, inner.tile
        self.batched, self.prefetches = inner.batched, inner.prefetches

    def prefetch(self, w: tk.Writer) -> None:
        """Its own."""
        self.inner.prefetch(w)

    def bind(self, w: tk.Writer, stages: Any, multicast: Any) -> Any:
        """Its own."""
        return self.inner.bind(w, stages, multicast)


class Epilogue:
    """Another's epilogue."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def prefetch(self, w: tk.Writer) -> None:
        """Its own."""
        self.inner.prefetch(w)

    def initialise(self, w: tk.Writer) -> None:
        """Its own."""
        self.inner.initialise(w)

    def bind(self, w: tk.Writer, group: Any) -> Any:
        """Its own."""
        return self.inner.bind(w, group)


class Sync:
    """Another's synchronisation."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def producer(self, w: tk.Writer) -> Any:
        """Nothing that fills."""
        return object()


def product(**given: Any) -> tk.ComposedKernel:
    """A matmul with a component of one's own."""
    operands = tk.Input("a", tk.BF16, "mk"), tk.Input("b", tk.BF16, "nk"), tk.Output("d", tk.BF16, "mn")

    @tk.kernel(*operands, target="sm_90a", threads=given.get("threads", PLAN.threads))
    def product(w: tk.Writer) -> Any:
        """D = A B^T."""
        cluster = tk.Cluster.read(w, 1, 1)
        a, b = tk.OperandTile("a", tk.BF16, TILE, "k"), tk.OperandTile("b", tk.BF16, TILE, "k")
        stage, op = tk.StandardPayload(a, b), tk.Wgmma(a, b, warpgroups=1)
        tiles = stage.allocate(w.shared, "inputs", STAGES)
        load_b = given.get("loader", lambda one: one)(tk.TmaLoader(w, b))
        loader = tk.StandardLoader(w, tk.TmaLoader(w, a), load_b, tiles, cluster)
        sides: dict[str, Any] = {"producers": (LOAD,), "consumers": (MMA,), "cluster": cluster}
        sides |= {"stage_bytes": stage.stage_bytes, **given.get("sides", {})}
        sync: Any = tk.MbarrierSync(w, "inputs", stages=STAGES, **sides)
        sync = given.get("sync", lambda one: one)(sync)
        k = w.parameter("k", tk.registers.U32, given.get("k", lambda call: call.k))
        raster = tk.RasterOrder(w, tile_m=TILE, tile_n=TILE, cluster=cluster, k=k, k_block=stage.k)
        scheduler = given.get("scheduler", tk.StaticScheduler)(raster)
        fusion = given.get("fusion", Plain)()
        epilogue: Any = tk.StagedEpilogue(w, op.layout, fusion, out=tk.BF16, role=MMA, buffers=2, first_barrier=1)
        epilogue = given.get("epilogue", lambda one: one)(epilogue)
        tk.WarpSpecialized(
            warps=PLAN,
            cluster=cluster,
            inputs=tk.TilePipeline(stage, tiles, stages=STAGES, sync=sync),
            loader=loader,
            op=op,
            accumulators=tk.RegisterAccumulators(op),
            scheduler=scheduler,
            epilogue=epilogue,
            k=k,
            in_flight=1,
        ).trace(w)
        return given.get("returned", scheduler)

    return product


@pytest.mark.parametrize(
    ("given", "code", "message"),
    [
        ({"threads": PLAN.threads + 128}, "TK-ROLE-003", "roles 256, .* nearest: threads=256"),
        ({"threads": PLAN.threads - 128}, "TK-PART-001", r"the threads of the kernel; or kernel\(threads=256\)"),
        ({"sides": {"stage_bytes": 8192}}, "TK-PART-001", r"MbarrierSync\(stage_bytes=8192\).*nearest: 16384"),
        ({"sides": {"producers": (MMA,), "consumers": (LOAD,)}}, "TK-ROLE-004", "role 'load' uses the producers'"),
    ],
)
def test_numbers_and_sides_that_do_not_agree(given: dict[str, Any], code: str, message: str) -> None:
    """What would wait for ever, or end before its copies do, is refused when the kernel is traced."""
    with pytest.raises(TilekitError, match=message) as caught:
        _ = product(**given).assembly
    assert caught.value.code == code


def of(base: type, **members: Any) -> type:
    """A class with other members."""
    return type("Mine", (base,), members)


class Copies:
    """Copies that are asked for a stage alone."""

    def load(self, w: tk.Writer, stage: Any) -> None:
        """Too little."""


def bound(at: Any, writer: Any = None) -> Any:
    """A loader whose bound form turns to a tile so, and whose threads' copies are grouped so."""
    members = {"writer": writer, "at": lambda self, w, row, batch, k: at}
    return lambda inner: of(Loader, bind=lambda self, w, stages, multicast: type("Bound", (), members)())(inner)


class Grouped:
    """What groups copies of a role's threads."""

    def joined(self, other: Any) -> Any:
        """One group."""
        return self

    def commit(self, w: tk.Writer) -> None:
        """Nothing to close."""

    def wait(self, w: tk.Writer, pending: int) -> None:
        """Nothing to wait for."""

    def complete(self, w: tk.Writer, stage: Any) -> None:
        """Nothing is left."""


def tileless(inner: Any) -> Loader:
    """A loader that does not say what it fills."""
    made = Loader(inner)
    made.tile = None
    return made


def too_short(w: Any, value: Any) -> Any:
    """An element's function that takes less than it is given."""
    return value


MISFITS: dict[str, tuple[dict[str, Any], str]] = {
    "apply": (
        {"fusion": of(Plain, apply=lambda self, w, value: value)},
        r"its apply\(w, value\) is not called as Fusion",
    ),
    "columns": ({"fusion": of(Plain, columns=lambda self, w, column: 0)}, r"its columns\(w, column\) is not called as"),
    "a static apply": (
        {"fusion": of(Plain, apply=staticmethod(too_short))},
        r"its apply\(w, value\) is not called as Fusion",
    ),
    "bind is a number": ({"fusion": of(Plain, bind=3)}, "its bind is no method"),
    "a number of an element": (
        {"fusion": of(Plain, apply=lambda self, *a, **n: 3.0)},
        r"Mine.apply returned 3.0 for an element of the output; it must return an f32 value",
    ),
    "a condition of one": (
        {"fusion": of(Plain, apply=lambda self, w, value, *a, **n: value > 0)},
        "Mine.apply returned <pred gt> for an element",
    ),
    "uses_rows": ({"fusion": of(Plain, uses_rows=lambda self: True)}, "Mine.uses_rows is <bound.*legal: True or False"),
    "a loader that is bound to nothing": (
        {"loader": of(Loader, bind=lambda self, w, stages, multicast: None)},
        r"Mine.bind returned None: it has no writer, at\(w, row, batch, k\), which BoundOperandLoader asks for",
    ),
    "a loader that turns to nothing": (
        {"loader": bound(None)},
        r"Bound.at returned None: it has no load\(w, stage, k\)",
    ),
    "a loader's copies": (
        {"loader": bound(Copies())},
        r"Bound.at returned a Copies: its load\(w, stage\) is not called",
    ),
    "copies that nothing groups": (
        {"loader": bound(Copies(), object())},
        r"given an object: it has no joined\(other\), commit\(w\), wait\(w, pending\), complete\(w, stage\), which",
    ),
    "commit": (
        {"loader": bound(Copies(), of(Grouped, commit=lambda self: None)())},
        r"\(writer=\) is given a Mine: its commit\(\) is not called as AsyncWriter.commit\(w\) is",
    ),
    "wait": (
        {"loader": bound(Copies(), of(Grouped, wait=lambda self, w: None)())},
        r"its wait\(w\) is not called as AsyncWriter.wait\(w, pending\) is",
    ),
    "complete": (
        {"loader": bound(Copies(), of(Grouped, complete=None)())},
        "its complete is no method, which AsyncWriter asks for",
    ),
    "a loader of no tile": (
        {"loader": tileless},
        r"Loader\(tile=\) is given None: it has no name, rows, which RowsTile asks for",
    ),
    "an epilogue that is bound to nothing": (
        {"epilogue": of(Epilogue, bind=lambda self, w, group: None)},
        r"Mine.bind returned None: it has no store\(w, accumulators, tile\), finish\(w\)",
    ),
    "no tiles": (
        {"scheduler": of(tk.StaticScheduler, tiles=lambda self, w, role: iter(()))},
        "Mine.tiles yields no tile; legal: a device loop",
    ),
    "tiles that are none": (
        {"scheduler": of(tk.StaticScheduler, tiles=lambda self, w, role: None)},
        "Mine.tiles returned None; legal: a device loop",
    ),
    "a producer": ({"sync": Sync}, r"Sync.producer returned an object: it has no"),
    "a parameter that takes no call": (
        {"k": lambda: 3},
        r"w.parameter\('k'\)\(value=\) is given <lambda>\(\), but is called with \(call\)",
    ),
    "a function of NumPy's in an epilogue": (
        {"fusion": lambda: tk.Fused(lambda w, x: np.tanh(x))},
        "NumPy's tanh cannot compute with; the fragments of w.isa.elementwise do: .*TK-TRACE-004",
    ),
    "a scheduler's class": ({"returned": tk.StaticScheduler}, "product returned <class .*TK-COMP-004"),
}


@pytest.mark.parametrize("name", MISFITS)
def test_a_misfit_is_named_as_the_kernel_is_traced(name: str) -> None:
    """Component, method, what was given and what is asked: never a bare exception of what came of it."""
    given, message = MISFITS[name]
    with pytest.raises(TilekitError, match=message) as caught:
        _ = product(**given).ptx
    assert caught.value.code in ("TK-FIT-001", "TK-EPI-001", "TK-EPI-002", "TK-COMP-004", "TK-TRACE-004")


def test_what_fits_is_traced() -> None:
    """The classes above, as they are, make a kernel that is right."""
    kernel = product(loader=Loader, epilogue=Epilogue)
    a, b = (np.ones(shape, tk.BF16.numpy) for shape in ((72, 64), (40, 64)))
    assert (kernel(a, b) == 64).all()


def whole(w: Any, value: Any, columns: Any, column: int, rows: Any, row: int, source: Any = None) -> Any:
    """The element."""
    return value


def held() -> Any:
    """An object that holds its functions, and has no class of its own."""
    made = Plain()
    names = [name for name in dir(made) if not name.startswith("_")]
    return SimpleNamespace(**{name: getattr(made, name) for name in names} | {"apply": whole})


FITS: dict[str, dict[str, Any]] = {
    "functions that an object holds": {"fusion": held},
    "a static method": {"fusion": of(Plain, apply=staticmethod(whole))},
    "a part of a method": {"fusion": of(Plain, apply=partialmethod(lambda self, _, w, value, *a, **n: value, 3))},
    "any arguments": {"fusion": of(Plain, apply=lambda self, *a, **n: a[1])},
    "a property that returns a function": {"fusion": of(Plain, apply=property(lambda self: whole))},
    "a property": {"fusion": of(Plain, uses_rows=property(lambda self: False))},
    "a function from C": {"k": attrgetter("k")},
    "a part of a function": {"k": partial(lambda more, call: call.k + more, 0)},
}


@pytest.mark.parametrize("name", FITS)
def test_what_fits_in_its_own_way(name: str) -> None:
    """How a member comes to be callable is the component's own business."""
    assert product(**FITS[name]).ptx == product().ptx


def test_a_schedule_that_is_none() -> None:
    """`schedule` is asked at the launch, and says how many clusters it has."""
    kernel = product(scheduler=of(tk.StaticScheduler, schedule=lambda self, call: None))
    a, b = (np.ones(shape, tk.BF16.numpy) for shape in ((72, 64), (40, 64)))
    with pytest.raises(TilekitError, match="returned None; legal: a Schedule, of clusters and tiles") as caught:
        kernel(a, b)
    assert caught.value.code == "TK-COMP-004"


@pytest.mark.parametrize(
    ("says", "message"),
    [
        ({"clusters": 0}, r"clusters=0\); legal: an integer from 1 to 2147483647; nearest: 1"),
        ({"clusters": 1.5625}, r"clusters=1.5625\); legal: an integer from 1 to 2147483647; nearest: 2"),
        ({"clusters": 1 << 31}, r"clusters=2147483648\); .*nearest: 2147483647"),
        ({"clusters": None}, r"clusters=None\); legal: an integer"),
        ({"tiles": 1.5}, r"tiles=1.5\); legal: an integer from 0 on"),
        ({"slots": -1}, r"slots=-1\); legal: an integer from 0 on; nearest: 0"),
    ],
)
def test_numbers_of_a_schedule(says: dict[str, Any], message: str) -> None:
    """Kernel, scheduler and the number that cannot be are named: not the grid that would come of it."""
    covers: Any = tk.Schedule(**{"clusters": 1, "tiles": 1, **says})
    kernel = product(scheduler=of(tk.StaticScheduler, schedule=lambda self, call: covers))
    a, b = (np.ones(shape, tk.BF16.numpy) for shape in ((72, 64), (40, 64)))
    with pytest.raises(TilekitError, match=rf"^product: Mine.schedule returned Schedule\({message}") as caught:
        kernel(a, b)
    assert caught.value.code == "TK-PART-001"


def test_whole_numbers_of_a_schedule_may_be_numpys() -> None:
    """What a scheduler computes with NumPy is a whole number, too."""
    covers: Any = tk.Schedule(clusters=np.int64(2), tiles=np.int32(2))
    kernel = product(scheduler=of(tk.StaticScheduler, schedule=lambda self, call: covers))
    a, b = (np.ones(shape, tk.BF16.numpy) for shape in ((72, 64), (40, 64)))
    assert (kernel(a, b) == 64).all()


MAKERS: dict[str, tuple[Callable[[], OwnComponents], str]] = {
    "functions": (lambda: OwnComponents(functions=lambda w: Plain()), r"\(w, columns=, rows=, precise=, batched=\)"),
    "loader_b": (lambda: OwnComponents(loader_b=lambda w: None), r"called with \(w, tile, batched=, participants="),
    "scheduler": (lambda: OwnComponents(scheduler=lambda raster: None), r"called with \(w, raster\)"),
    "consumers": (lambda: OwnComponents(consumers=lambda: tk.Cooperative()), r"called with \(w\)"),
    "epilogue": (lambda: OwnComponents(epilogue=lambda w: None), r"called with \(w, layout, functions, out="),
    "make": (
        lambda: OwnComponents(role=OwnRole(tk.RoleEntry("audit", 1, frozenset({"memory"})), lambda w: None)),
        r"called with \(w, kernel\)",
    ),
}


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("name", MAKERS)
def test_what_makes_a_component_takes_what_it_is_given(name: str) -> None:
    """Of `tilekit.matmul`'s components, too: by what each maker is called with."""
    make, message = MAKERS[name]
    a, b = np.ones((64, 64), np.float16), np.ones((64, 64), np.float16)
    with pytest.raises(TilekitError, match=message) as caught:
        tilekit.kernel_for(a, b, components=make(), target="sm_90a")
    assert caught.value.code == "TK-FIT-001"
    assert f"({name}=)" in str(caught.value)


def test_functions_of_ones_own() -> None:
    """`Fused` and `ChangedScores` say how they call a function, where it is given."""
    for function, source in ((lambda w: w, None), (lambda w, x: x, tk.BF16)):
        with pytest.raises(TilekitError, match=r"Fused\(function=\) is given <lambda>.*TK-FIT-001"):
            tk.Fused(function, source=source)

    with pytest.raises(TilekitError, match=r"ChangedScores\(change=\).*\(w, score, query, key, head\)"):

        @tk.attention_kernel(tilekit.AttentionSpec(tk.F16, 64, 64), target="sm_90a")
        def changed(w: tk.Writer, made: Any) -> Any:
            return tk.ChangedScores(made.range, lambda w, score, query, key: score)  # type: ignore[arg-type,misc]


class Half:
    """One CTA, whatever the call."""

    def schedule(self, call: tk.Call) -> tk.Schedule:
        """One."""
        return tk.Schedule(clusters=1, tiles=1)


@tk.kernel(tk.Input("x", tk.F32, "n"), tk.Output("y", tk.F32, "n"), target="sm_90a", threads=64)
def half(w: tk.Writer) -> Half:
    """Writes the first half of y, and forgets the other."""
    n = w.parameter("n", tk.registers.U32, lambda call: call.n)
    y = w.parameter("y", tk.registers.GMEM, lambda call: call.address("y"))
    address = (y + w.widen_multiply(w.thread(), 4)).retyped(tk.registers.GMEM)
    w.isa.memory.store_global_f32(address=address, value=-1.0, valid=w.thread() < n // 2)
    return Half()


def test_elements_that_are_never_written() -> None:
    """They are NaN after a launch on the emulator, and `check` says how many there are, and where."""
    y = half(np.ones(10, np.float32))
    assert (y[:5] == -1).all()
    assert np.isnan(y[5:]).all()
    with pytest.raises(
        TilekitError, match=r"half: no thread writes 5 of 10 elements of y, the first at \(5,\)"
    ) as caught:
        half.check(n=10)
    assert caught.value.code == "TK-COMP-010"
