"""A kernel in one screen: roles, registers, shared and tensor memory, barriers, and what a tile costs."""

from __future__ import annotations

from tilekit.assembly.shared import SharedArray
from tilekit.kernels.matmul.config import KernelConfig
from tilekit.kernels.matmul.kernel import KernelText
from tilekit.kernels.matmul.platforms import platform
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.kernels.shared_map import shared_memory_map
from tilekit.tile_io.copy_plan import CopyPlan
from tilekit.tile_schedule.clc import RESPONSE_BYTES


def explain(spec: MatmulSpec, config: KernelConfig, text: KernelText) -> str:
    """Describe a traced kernel."""
    (tile_m, tile_n), k = config.tile, config.k_block(spec.a_dtype, spec.block_bytes)
    layers = f"x{config.cluster_k} along K" if config.cluster_k > 1 else ""
    head = (
        f"{text.name}: {spec.a_dtype} x {spec.b_dtype} -> {spec.out_dtype}, {tile_m}x{tile_n}x{k}, {text.stages} "
        f"stages, cluster {config.cluster[0]}x{config.cluster[1]}{layers}, {text.target.name}"
        + (", operands swapped: rows along N" if config.swap_ab else "")
    )
    memory = shared_memory_map(text.shared, text.shared_bytes, text.target.shared_bytes)
    swaps = [f"swapped      {what}" for what in spec.swaps]
    lines = [head, *swaps, "", *_roles(spec, config, text), "", *memory, ""]
    tensor_memory = platform(text.target).notes.tensor_memory(spec, config, text.target)
    if tensor_memory:
        lines += [*tensor_memory, ""]
    barriers = _barriers(spec, config, text)
    lines += [*barriers, ""] if barriers else []
    own = platform(text.target).notes.sections(spec, config, text)
    return "\n".join([*lines, *_costs(spec, config, text), *own])


def _roles(spec: MatmulSpec, config: KernelConfig, text: KernelText) -> list[str]:
    chip = text.target
    launch = config.warps(chip, spec).launch_registers
    width = max(len(role.name) for role in text.roles) + 2
    lines = [f"{'role':<{max(width, 8)}}{'warps':<8}{'threads':<9}{'registers':<11}may"]
    for role in text.roles:
        first, last = role.warps.start, role.warps.stop - 1
        warps = f"{first}-{last}" if last > first else f"{first}"
        registers = f"{launch} -> {role.registers}" if role.registers else f"{launch}"
        lines.append(
            f"{role.name:<{max(width, 8)}}{warps:<8}{chip.lanes * len(role.warps):<9}{registers:<11}"
            f"{', '.join(sorted(role.may))}"
        )
    used = sum(chip.lanes * len(r.warps) * (r.registers or launch) for r in text.roles)
    accumulators = platform(chip).notes.accumulators(spec, config)
    return [*lines, "", f"registers {used} of {chip.registers}{accumulators}"]


def _barriers(spec: MatmulSpec, config: KernelConfig, text: KernelText) -> list[str]:
    sums = (
        4
        * config.tile[0]
        * config.tile[1]
        // max(1, sum(array.count for array in text.shared if array.name == "sum.full"))
    )
    loaded = config.cta_group * config.engine_bytes(spec)
    bytes_of = {"sum.full": sums, "inputs.full": loaded or "-", "clc.full": RESPONSE_BYTES}
    barriers = [array for array in text.shared if array.kind == "mbarrier"]
    if not barriers:
        return []
    labels = [f"{array.name}[{array.count}]" for array in barriers]
    arrivers = [_who(array, text) for array in barriers]
    name, who = max(18, *(len(label) + 2 for label in labels)), max(26, *(len(words) + 2 for words in arrivers))
    lines = [f"{'barrier':<{name}}{'count':<7}{'bytes':<9}{'arrives':<{who}}waits"]
    return lines + [
        f"{label:<{name}}{array.arrivals:<7}{bytes_of.get(array.name, '-'):<9}{words:<{who}}{', '.join(array.wait)}"
        for label, words, array in zip(labels, arrivers, barriers, strict=True)
    ]


def _who(array: SharedArray, text: KernelText) -> str:
    """Who arrives, and from how many CTAs."""
    here = sum(role.arrivals for role in text.roles if role.name in array.arrive)
    ctas, odd = divmod(array.arrivals, here)
    where = " of the cluster" if odd else f" of {ctas} CTAs" if ctas > 1 else ""
    where = ", one warpgroup" if array.arrivals < here else where
    if array.name == "sum.empty":
        where = f" of {text.cluster} CTAs, one warpgroup"
    return ", ".join(array.arrive) + where


def _costs(spec: MatmulSpec, config: KernelConfig, text: KernelText) -> list[str]:
    notes = platform(text.target).notes
    (tile_m, tile_n), k = config.tile, config.k_block(spec.a_dtype, spec.block_bytes)
    fetched, flops = config.payload(spec).transfer_bytes, 2 * tile_m * tile_n * k * spec.a_dtype.packed
    out = f"{tile_m * tile_n * spec.out_dtype.bytes // spec.out_dtype.packed} B of output"
    lines = [
        f"per k-block  {fetched} B into shared memory, {flops / 1e6:.2f} MFLOP, {flops / fetched:.0f} FLOP/B"
        + notes.instructions(spec, config),
        *(_copies(copies) for copies in config.copy_plans(spec) if copies is not None),
        *notes.rows(spec, config),
    ]
    if config.cluster_k > 1:
        out = f"{tile_m * tile_n * 4} B of sums to {config.cluster_k} CTAs, each with a part of {out}"
    if config.pingpong:
        out = f"one warpgroup's in its turn, {out}"
    if not config.output(spec).direct:
        rows = "transposed" if config.swap_ab else f"{min(tile_m, config.output(spec).layout.rows)}-row"
        each = " a warpgroup" if config.warps(text.target, spec).get("epilogue") is None else ""
        where = f"in {rows} subtiles through {config.output_buffers} buffers{each}"
    elif config.output(spec).declared():
        where = "in images of each warp's rows"
    else:
        where = "stored from registers"
    last = f"{4 * tile_m * tile_n} B of sums kept for the CTA that has a tile's first k-block"
    tail = [f"last tiles   equal ranges of k-blocks, {last}"] if config.stream_k else []
    return [*lines, f"per tile     K/{k} k-blocks, {out} {where}", *tail]


def _copies(plan: CopyPlan) -> str:
    """How threads copy an operand."""
    shifted = f", then shifted by a multiple of {plan.width} B" if plan.shifts else ""
    return f"copies       {plan.tile.name}: {plan.lines} lines of 128 B, {plan.copied} B at once{shifted}"
