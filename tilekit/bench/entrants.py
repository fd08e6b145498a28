"""Who takes part: tilekit, the array library, and peers that are files with a list of entrants."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tilekit.bench.attention import Masked
from tilekit.bench.blockwise import ScaledGroups, Scales
from tilekit.bench.conv2d import Filtered, images
from tilekit.bench.conv2d_gradients import Gradient
from tilekit.bench.machine import Machine
from tilekit.bench.row_groups import Groups
from tilekit.bench.scaled import LaidOut
from tilekit.bench.workload import Fused
from tilekit.errors import ArgumentError
from tilekit.kernels.matmul.spec import Precision

__all__ = ["OURS", "PEERS", "Entrant", "Peers", "first_line", "library_entrants", "load_peers", "tilekit_entrants"]

OURS: Final = "tilekit"

PEERS: Final = Path(__file__).parents[2] / "benchmarks" / "peers"
"""Where a checkout keeps its peers; an installed package has none."""

Launch = Callable[..., None]

Collect = Callable[..., None]
"""Copies the result of the latest launch on a set's operands to the set's output, which is the last of them."""


@dataclass(frozen=True, slots=True)
class Entrant:
    """One contestant in one family of workloads.

    Attributes
    ----------
    name : str
    launch : callable
        Takes the operands of a set, the output last, and enqueues the work on the library's current stream.
    family : str
        The workloads that it computes, by the name of tilekit's function for them.
    prepare : callable or None
        Called once a case with the machine and all operand sets, before anything is timed: the place to tune.
    collect : callable or None
        For a library that returns new arrays: called after the pass that is checked, and not timed.
    part : bool
        Whether it computes a part of the workload, to show what the rest costs: it is not checked, and no peer.
    """

    name: str
    launch: Launch
    family: str = "matmul"
    prepare: Callable[[Machine, Sequence[tuple[Any, ...]]], None] | None = None
    collect: Collect | None = None
    part: bool = False


def tilekit_entrants(machine: Machine) -> list[Entrant]:
    """Return tilekit's own entrants: its array calls, with the kernels that its heuristics pick; one a family first."""
    import tilekit

    def matmul(a: Any, b: Any, out: Any) -> None:
        # 8-bit products have a scale a tensor, here 1, as the library's have; f32 is tf32 on both sides.
        floats = a.dtype.itemsize == 1 and not str(a.dtype).endswith("int8")
        scale = machine.one() if floats else None
        accumulation = machine.accumulation if floats else "fast"
        precision: Precision | None = "tf32" if a.dtype.itemsize == 4 else None
        tilekit.matmul(a, b, out=out, scale=scale, precision=precision, accumulation=accumulation)

    def fused_matmul(a: Any, b: Any, fused: Fused, out: Any) -> None:
        tilekit.matmul(a, b, out=out, bias=fused.bias, activation=fused.activation)

    def grouped(a: Any, b: Any, groups: Groups, out: Any) -> None:
        tilekit.grouped_matmul(a, b, out=out, **groups.keywords)

    def blockwise(a: Any, b: Any, scales: Scales, out: Any) -> None:
        tilekit.scaled_matmul(a, b, scales.a, scales.b, out=out)

    def grouped_blockwise(a: Any, b: Any, groups: ScaledGroups, out: Any) -> None:
        scales = {"scale_a": groups.scales.a, "scale_b": groups.scales.b}
        tilekit.grouped_matmul(a, b, out=out, **scales, **groups.keywords)

    def block_scaled(a: Any, b: Any, scales: LaidOut, out: Any) -> None:
        tilekit.scaled_matmul(a, b, scales.a, scales.b, out=out)

    def conv2d(x: Any, w: Any, filtered: Filtered, out: Any) -> None:
        tilekit.conv2d(images(x), images(w), out=images(out), **filtered.how)

    def fused_conv2d(x: Any, w: Any, filtered: Filtered, out: Any) -> None:
        more = {"bias": filtered.fused.bias, "activation": filtered.fused.activation}
        if filtered.residual is not None:
            more["residual"] = images(filtered.residual)
        tilekit.conv2d(images(x), images(w), out=images(out), **more, **filtered.how)

    def attention(q: Any, k: Any, v: Any, masked: Masked, out: Any) -> None:
        tilekit.attention(q, k, v, out=out, **masked.keywords)

    gradients: dict[int, Any] = {}

    def conv2d_gradient(x: Any, w: Any, dy: Any, gradient: Gradient, out: Any) -> None:
        if gradient.of == "images":
            found = tilekit.conv2d_input_gradient(images(dy), images(w), x.shape[1:3], **gradient.how)
        else:
            found = tilekit.conv2d_weight_gradient(images(x), images(dy), w.shape[1:3], **gradient.how)
        gradients[id(out)] = found

    def collect_gradient(*operands: Any) -> None:
        images(operands[-1])[...] = gradients[id(operands[-1])]

    def forget(machine: Machine, sets: Sequence[tuple[Any, ...]]) -> None:
        gradients.clear()

    return [
        Entrant(OURS, matmul),
        Entrant(OURS, fused_matmul, "fused_matmul"),
        Entrant(OURS, grouped, "grouped_matmul"),
        Entrant(OURS, conv2d, "conv2d"),
        Entrant(OURS, fused_conv2d, "fused_conv2d"),
        Entrant(f"{OURS}, nothing fused", conv2d, "fused_conv2d", part=True),
        Entrant(OURS, conv2d_gradient, "conv2d_gradient", prepare=forget, collect=collect_gradient),
        Entrant(OURS, blockwise, "blockwise"),
        Entrant(OURS, grouped_blockwise, "grouped_blockwise"),
        Entrant(OURS, block_scaled, "block_scaled"),
        Entrant(OURS, attention, "attention"),
    ]


def library_entrants(machine: Machine) -> list[Entrant]:
    """Return the array library's own products: cuBLAS through torch or CuPy, one call a group for groups."""

    def grouped(a: Any, b: Any, groups: Groups, out: Any) -> None:
        start = 0
        for group, size in enumerate(groups.sizes):
            if size:
                machine.matmul(a[start : start + size], b[group], out[start : start + size])
            start += size

    def blockwise(a: Any, b: Any, scales: Scales, out: Any) -> None:
        machine.blockwise(a, b, scales, out)

    def block_scaled(a: Any, b: Any, scales: LaidOut, out: Any) -> None:
        machine.block_scaled(a, b, scales, out)

    name = f"cuBLAS ({machine.library.split()[0]})"
    return [
        Entrant(name, machine.matmul),
        Entrant(name, machine.fused, "fused_matmul"),
        Entrant(name, grouped, "grouped_matmul"),
        Entrant(name, blockwise, "blockwise"),
        Entrant(name, block_scaled, "block_scaled"),
    ]


@dataclass(slots=True)
class Peers:
    """The peers that are here.

    Attributes
    ----------
    entrants : list of Entrant
    about : dict of str to str
        Versions, by package.
    skipped : dict of str to str
        Why a peer does not take part, by its name.
    """

    entrants: list[Entrant] = field(default_factory=list)
    about: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)


def load_peers(names: Sequence[str], folder: Path = PEERS) -> Peers:
    """Load peers from their files.

    A peer is a Python file with ``ENTRANTS``, a list of :class:`Entrant`, and ``ABOUT``, the versions of what it needs.
    One that cannot be loaded, such as for want of a package, is skipped with the reason.

    Parameters
    ----------
    names : sequence of str
        Names of files in ``folder``, without ``.py``; paths of files anywhere; or ``"all"`` for the whole folder.
    folder : Path, optional

    Raises
    ------
    ArgumentError
        If there is no such peer.
    """
    here = {path.stem: path for path in sorted(folder.glob("*.py")) if path.stem != "__init__"}
    files: dict[str, Path] = {}
    for name in names:
        if name == "all":
            files |= here
        elif name in here:
            files[name] = here[name]
        elif name.endswith(".py") and Path(name).is_file():
            files[Path(name).stem] = Path(name)
        else:
            legal = ", ".join(["library", *here, "all", "the path of a .py file"])
            raise ArgumentError.of("--peers", name, legal=legal, code="TK-BENCH-003")
    peers = Peers()
    for name, path in files.items():
        try:
            module = _load(name, path)
        except Exception as error:
            # Packages fail to load in many ways: not installed, another CUDA, no driver.
            peers.skipped[name] = first_line(error)
            continue
        peers.entrants += module.ENTRANTS
        peers.about |= module.ABOUT
    return peers


def first_line(error: Exception) -> str:
    """Return the class and the first line of an error, for a note in a table."""
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}".rstrip(": ")


def _load(name: str, path: Path) -> Any:
    full_name = f"tilekit_peer_{name}"
    spec = importlib.util.spec_from_file_location(full_name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[full_name] = module  # Triton looks its kernels' module up by name
    spec.loader.exec_module(module)
    return module
