"""A gemv kernel in one screen: who reads what, how much is on its way, and what a tile costs."""

from __future__ import annotations

from tilekit.kernels.gemv.config import GemvConfig
from tilekit.kernels.gemv.kernel import GemvText
from tilekit.kernels.gemv.spec import GemvSpec
from tilekit.kernels.gemv.weights import shape_of


def explain(spec: GemvSpec, config: GemvConfig, text: GemvText) -> str:
    """Describe a traced kernel."""
    shape, chip = shape_of(spec), text.target
    per_cta = config.bytes_in_flight(spec)
    early = (
        "the first slots are loaded"
        if spec.weights_ready
        else f"{config.prefetch} steps of the CTA are brought into L2"
        if config.prefetch
        else "nothing is read"
    )
    lines = [
        f"{text.name}: {spec.a_dtype} x {spec.b_dtype} -> {spec.out_dtype}, up to {spec.tokens} tokens, {chip.name}",
        "",
        f"tile         {config.columns(spec)} columns of D a {'CTA' if config.cluster == 1 else 'cluster'}",
        f"slot         {config.groups} x {shape.bytes} B: {shape.k_block} of K by {shape.columns} columns a group",
        f"K            divided among {config.warps} warps of {config.cluster} CTAs, in turn; "
        f"{config.k_step(spec)} a step of a CTA",
        f"on their way {config.loads(spec)} loads of 16 B a thread, {per_cta} B a CTA, "
        f"{per_cta * config.ctas_per_sm} B an SM",
        f"before the kernel ahead is complete, {early}",
        f"sums         {text.shared_bytes} of {chip.shared_bytes} B of shared memory: {config.units} warps, twice",
        f"launch       {config.ctas_per_sm} CTAs an SM of {text.threads} threads; an SM holds "
        f"{config.resident(spec, chip)}",
    ]
    return "\n".join(lines)
