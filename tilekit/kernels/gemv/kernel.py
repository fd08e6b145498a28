"""A gemv kernel: the components a spec and a config select, traced by the streaming driver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilekit.assembly.shared import SharedArray
from tilekit.assembly.types import U32
from tilekit.assembly.writer import Parameter, Role, Writer
from tilekit.drivers.streaming import KRange, Slots, Streaming
from tilekit.dtypes import F32
from tilekit.epilogue.functions import Elementwise
from tilekit.kernels.gemv.config import GemvConfig
from tilekit.kernels.gemv.spec import VECTOR, GemvSpec, counted
from tilekit.kernels.gemv.sums import WarpSums
from tilekit.kernels.gemv.tokens import Tokens
from tilekit.kernels.gemv.weights import ColumnWeights, RowWeights, shape_of
from tilekit.targets import Target
from tilekit.tiles.call import Call, Schedule


@dataclass(frozen=True)
class GemvText:
    """A traced kernel: its text, and what a launch must know about it.

    Attributes
    ----------
    name, target, assembly
        Entry symbol, assembler target, module text.
    parameters
        In launch order.
    threads, cluster, shared_bytes
        Launch shape: threads of a CTA, CTAs of a cluster, dynamic shared memory.
    shared
        The shared-memory map.
    schedule
        How a launch covers the output.
    profile
        Nothing: this family notes no times of its own.
    """

    name: str
    target: Target
    assembly: str
    parameters: tuple[Parameter, ...]
    threads: int
    cluster: int
    shared_bytes: int
    shared: tuple[SharedArray, ...]
    schedule: Callable[[Call], Schedule]
    profile: None = None


@dataclass(frozen=True)
class Division:
    """How a product is divided.

    Attributes
    ----------
    columns
        Columns of D that a CTA computes.
    k_parts, k_block
        CTAs that divide K among them, into whole k-blocks of so many elements.
    """

    columns: int
    k_parts: int
    k_block: int

    def tiles(self, call: Call) -> int:
        """Tiles of a call."""
        return -(-call.n // self.columns)

    def share(self, call: Call) -> int:
        """Elements of K of a CTA."""
        return -(-call.k // (self.k_parts * self.k_block)) * self.k_block

    def schedule(self, call: Call) -> Schedule:
        """Every cluster that fits has a part of the tiles, so that as many loads as possible are on their way."""
        tiles = self.tiles(call)
        return Schedule(min(tiles, call.resident), tiles)


def trace(spec: GemvSpec, config: GemvConfig, target: Target) -> GemvText:
    """Trace the kernel that `spec` and `config` describe.

    Raises
    ------
    ConfigError
        Listing every rule the config violates.
    """
    config.check(target, spec)
    w = Writer(
        spec.name,
        target=target,
        threads=config.threads,
        cluster=config.cluster,
        resident=config.resident(spec, target),
    )
    shape = shape_of(spec)
    slots = Slots(config.depth, config.warps * shape.k_block)
    division = Division(columns=config.columns(spec), k_parts=config.cluster, k_block=shape.k_block)
    m = w.parameter("rows", U32, lambda call: call.m)
    n = w.parameter("columns", U32, lambda call: counted("N", call.n, 31))
    k = KRange(
        k=w.parameter("k", U32, lambda call: counted("K", call.k, 31)),
        share=w.parameter("k_share", U32, division.share),
        steps=w.parameter("steps", U32, lambda call: -(-division.share(call) // config.k_step(spec))),
    )
    tiles = w.parameter("tiles", U32, division.tiles)
    kind = RowWeights if spec.b_major == "k" else ColumnWeights
    weights = kind(w, spec, groups=config.groups, slots=slots, l2_bytes=config.l2_bytes, n=n)
    tokens = Tokens(w, spec, shape=shape, slots=slots, m=m)
    functions = Elementwise(w, spec.functions, columns=n, precise=spec.out_dtype == F32, rows=m)
    sums = WarpSums(w, spec, weights, functions, warps=config.warps, cluster=config.cluster, m=m, n=n)
    Streaming(
        role=Role("stream", range(config.warps), frozenset({"memory", "mma", "load", "store"})),
        cluster=config.cluster,
        weights=weights,
        tokens=tokens,
        reduction=sums,
        slots=slots,
        k_block=shape.k_block,
        lane_k=shape.lane_k,
        k=k,
        tiles=tiles,
        prefetch=config.prefetch if spec.b_access == VECTOR else 0,
        weights_ready=spec.weights_ready,
        overlap=config.overlap,
    ).trace(w)
    w.shared.check(config.declared(spec), spec.name)
    return GemvText(
        name=spec.name,
        target=target,
        assembly=w.text(),
        parameters=tuple(w.parameters),
        threads=config.threads,
        cluster=config.cluster,
        shared_bytes=w.shared.size,
        shared=tuple(w.shared.arrays),
        schedule=division.schedule,
    )
