"""A kernel in one screen: roles, registers, shared memory, barriers, and what a tile costs."""

from __future__ import annotations

from tilekit.kernels.matmul.config import MatmulConfig
from tilekit.kernels.matmul.kernel import KernelText
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.tile_io.operand import SPAN


def explain(spec: MatmulSpec, config: MatmulConfig, text: KernelText) -> str:
    """Describe a traced kernel."""
    (tile_m, tile_n), chip = config.tile, text.target
    k = SPAN // spec.a_dtype.bytes
    fetched = config.stage_bytes(spec)
    flops = 2 * tile_m * tile_n * k
    head = (
        f"{text.name}: {spec.a_dtype} x {spec.b_dtype} -> {spec.out_dtype}, {tile_m}x{tile_n}x{k}, {text.stages} "
        "stages, "
        f"cluster {config.cluster[0]}x{config.cluster[1]}, {chip.name}"
    )
    lines = [head, "", f"{'role':<8}{'warps':<8}{'threads':<9}{'registers':<11}may"]
    launch = config.warps(chip, spec).launch_registers(chip.registers)
    for role in text.roles:
        warps = f"{role.warps.start}-{role.warps.stop - 1}"
        registers = f"{launch} -> {role.registers}" if role.registers else f"{launch}"
        lines.append(f"{role.name:<8}{warps:<8}{32 * len(role.warps):<9}{registers:<11}{', '.join(sorted(role.may))}")
    used = sum(32 * len(r.warps) * (r.registers or launch) for r in text.roles)
    lines += ["", f"registers {used} of {chip.registers} after setmaxnreg; accumulators {config.accumulators} a thread"]
    lines += [
        "",
        f"shared memory {text.shared_bytes} of {chip.shared_bytes} B",
        f"{'  offset':<10}{'bytes':>8}  object",
    ]
    for array in text.shared:
        count = f"[{array.count}] x {array.stride} B" if array.count > 1 else ""
        lines.append(f"{array.offset:>8}{array.size:>10}  {array.name} {count}".rstrip())
    lines += ["", f"{'barrier':<18}{'count':<7}{'bytes':<9}{'arrives':<26}waits"]
    for array in text.shared:
        if array.kind == "mbarrier":
            expects = str(config.stage_bytes(spec)) if array.name.endswith(".full") else "-"
            who = ", ".join(array.arrive) + (
                f" of {config.cluster_size} CTAs" if config.cluster_size > 1 and expects == "-" else ""
            )
            lines.append(
                f"{array.name + f'[{array.count}]':<18}{array.arrivals:<7}{expects:<9}{who:<26}{', '.join(array.wait)}"
            )
    lines += [
        "",
        f"per k-block  {fetched} B into shared memory, {flops / 1e6:.2f} MFLOP, {flops / fetched:.0f} FLOP/B",
        f"per tile     K/{k} k-blocks, {tile_m * tile_n * spec.out_dtype.bytes} B of output"
        + (
            f" in 64-row slabs through {config.output_buffers} buffers a warpgroup"
            if spec.store == "tma"
            else " stored from registers"
        ),
    ]
    return "\n".join(lines)
