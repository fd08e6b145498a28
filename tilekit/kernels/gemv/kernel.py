"""A gemv kernel: the components a spec and a config select, traced by the streaming driver."""

from __future__ import annotations

from dataclasses import dataclass

from tilekit.assembly.shared import SharedArray
from tilekit.assembly.types import U32
from tilekit.assembly.writer import Parameter, Role, Writer
from tilekit.drivers.streaming import KRange, Slots, Streaming
from tilekit.dtypes import F32
from tilekit.epilogue.functions import Elementwise
from tilekit.kernels.gemv.config import GemvConfig
from tilekit.kernels.gemv.spec import VECTOR, GemvSpec
from tilekit.kernels.gemv.sums import WarpSums
from tilekit.kernels.gemv.tokens import Tokens
from tilekit.kernels.gemv.weights import ColumnWeights, RowWeights, shape_of
from tilekit.targets import Target


@dataclass(frozen=True)
class GemvText:
    """A traced kernel: its text, and what a launch must know about it.

    Attributes
    ----------
    name, target, ptx
        Entry symbol, assembler target, module text.
    parameters
        In launch order.
    threads, cluster, shared_bytes
        Launch shape: threads of a CTA, CTAs of a cluster, dynamic shared memory.
    shared
        The shared-memory map.
    profile
        Nothing: this family notes no times of its own.
    """

    name: str
    target: Target
    ptx: str
    parameters: tuple[Parameter, ...]
    threads: int
    cluster: int
    shared_bytes: int
    shared: tuple[SharedArray, ...]
    profile: None = None


def trace(spec: GemvSpec, config: GemvConfig, target: Target) -> GemvText:
    """Trace the kernel that `spec` and `config` describe.

    Raises
    ------
    ConfigError
        Listing every rule the config violates.
    """
    config.check(target, spec)
    w = Writer(spec.name, target=target.name, threads=config.threads, cluster=config.cluster)
    shape = shape_of(spec)
    slots = Slots(config.depth, config.warps * shape.k_block)
    m, n = w.parameter("rows", U32), w.parameter("columns", U32)
    k = KRange(k=w.parameter("k", U32), share=w.parameter("k_share", U32), steps=w.parameter("steps", U32))
    tiles = w.parameter("tiles", U32)
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
    # The writer's head promises ptxas one CTA an SM, and so 255 registers a thread.
    ptx = w.text().replace(".minnctapersm 1", f".minnctapersm {config.resident(spec, target)}")
    return GemvText(
        name=spec.name,
        target=target,
        ptx=ptx,
        parameters=tuple(w.parameters),
        threads=config.threads,
        cluster=config.cluster,
        shared_bytes=w.shared.size,
        shared=tuple(w.shared.arrays),
    )
