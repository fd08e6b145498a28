"""From a problem to kernel arguments: the grid, the division of K, and every scalar a traced gemv declares."""

from __future__ import annotations

from tilekit.errors import ArgumentError
from tilekit.kernels.gemv.config import GemvConfig
from tilekit.kernels.gemv.kernel import GemvText
from tilekit.kernels.gemv.spec import GemvSpec
from tilekit.kernels.gemv.weights import shape_of
from tilekit.kernels.matmul.arguments import Addresses, MatmulLaunch
from tilekit.kernels.matmul.problem import MatmulCall
from tilekit.runtime import parameters as runtime


def launch_arguments(
    text: GemvText,
    spec: GemvSpec,
    config: GemvConfig,
    call: MatmulCall,
    addresses: Addresses,
    *,
    resident_clusters: int,
) -> MatmulLaunch:
    """Compute grid and parameters; `resident_clusters` is how many clusters share the device.

    Every cluster that fits has a part of the tiles, so that as many loads as possible are on their way.

    Raises
    ------
    ArgumentError
        ``TK-GV-006`` where an extent or a pitch is too large to count in 32 bits.
    """
    problem, out = call.problem, call.out
    tiles = -(-problem.n // config.columns(spec))
    block = shape_of(spec).k_block
    share = -(-problem.k // (config.cluster * block)) * block  # of a CTA: whole k-blocks
    size = out.dtype.bytes
    values: dict[str, runtime.Parameter] = {
        "rows": runtime.U32(problem.m),
        "columns": runtime.U32(_fits("N", problem.n, 31)),
        "k": runtime.U32(_fits("K", problem.k, 31)),
        "k_share": runtime.U32(share),
        "steps": runtime.U32(-(-share // config.k_step(spec))),
        "tiles": runtime.U32(tiles),
        "a": runtime.Pointer(addresses.a),
        "a_pitch": runtime.U32(_fits("a's row pitch in bytes", problem.a.pitch, 32)),
        "b": runtime.Pointer(addresses.b),
        "b_pitch": runtime.U32(_fits("b's pitch in bytes", problem.b.pitch, 32)),
        "d": runtime.Pointer(addresses.out),
        "d_pitch": runtime.U32(_fits("out's row pitch", out.pitch // size, 32)),
        "residual": runtime.Pointer(addresses.residual),
        "residual_pitch": runtime.U32(
            _fits("residual's row pitch", call.residual.pitch // size if call.residual else 0, 32)
        ),
        "beta": runtime.F32(call.beta),
        "bias": runtime.Pointer(addresses.bias),
        "scale_a": runtime.Pointer(addresses.scale_a),
        "scale_b": runtime.Pointer(addresses.scale_b),
        "scale": runtime.Pointer(addresses.scale) if addresses.scale else runtime.F32(call.scale),
    }
    parameters = tuple(values[p.name] for p in text.parameters)
    groups = -(-problem.n // config.tile[1])
    return MatmulLaunch(min(tiles, resident_clusters) * config.cluster, parameters, groups * -(-problem.k // block))


def _fits(what: str, value: int, bits: int) -> int:
    if value >= 1 << bits:
        raise ArgumentError(
            f"{what} is {value}; the kernel counts up to {(1 << bits) - 1}; nearest: {(1 << bits) - 1}",
            code="TK-GV-006",
        )
    return value
