"""AMDGCN modules: the dialect, and how its text is laid out."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tilekit.assembly.dialect import FragmentFormat
from tilekit.assembly.gcn.abi import GIVEN, USER_SGPRS, KernelAbi
from tilekit.assembly.gcn.code import Instruction
from tilekit.assembly.gcn.fragment_text import check_text
from tilekit.assembly.gcn.notation import HOLE
from tilekit.assembly.trace import Trace

if TYPE_CHECKING:
    from tilekit.assembly.gcn.allocation import Allocation

CODE_OBJECT_VERSION = 5
"""Every ROCm that knows the chips loads it."""

_ORIGIN_COLUMN = 100
_NEVER = re.compile(r"(?!)(.*)")


class GcnDialect:
    """A `tilekit.assembly.dialect.Dialect`."""

    isa = "gcn"
    fragments = FragmentFormat(
        suffix=".s",
        target=re.compile(r"(?P<architecture>gfx[0-9a-f]+)"),
        example="gfx942",
        guard=_NEVER,
        hole=HOLE,
        check=check_text,
        files=("vector", "scalar", "accumulator"),
        given=GIVEN,
        temporaries=True,
    )
    reserved = frozenset({"exec", "vcc", "m0", "scc"})
    shared_at_launch = False

    def module(self, trace: Trace) -> str:
        """Return the module with its one kernel."""
        # Only who writes for these chips loads what reads their instructions.
        from tilekit.assembly.gcn.improvement import finish_improved
        from tilekit.assembly.gcn.lowering import lower, waves_per_simd

        code, abi = lower(trace)
        finished = finish_improved(code, chip=trace.target.name, waves_per_simd=waves_per_simd(trace))
        notes = [f"role {r.name} warps={r.warps.start}-{r.warps.stop - 1}" for r in trace.roles]
        notes += trace.shared.annotations()
        name = trace.name
        text = [
            f'.amdgcn_target "amdgcn-amd-amdhsa--{trace.target.name}"',
            f".amdhsa_code_object_version {CODE_OBJECT_VERSION}",
            "",
            ".text",
            ".p2align 8",
            f".globl {name}",
            f".type {name},@function",
            f"{name}:",
            *(f"    //@{note}" for note in notes),
            *(_line(text, instruction) for text, instruction in finished.lines),
            f".size {name}, .-{name}",
            "",
            *_descriptor(trace, abi, finished.allocation),
            "",
            *_metadata(trace, abi, finished.allocation),
            "",
        ]
        return "\n".join(text)


def _line(text: str, instruction: Instruction | None) -> str:
    """A line with a comment that says whose it is."""
    if text.endswith(":"):
        return text
    if instruction is None or instruction.origin is None:
        return f"    {text}"
    origin, pad = instruction.origin, "    " * max(instruction.depth, 1)
    comment = f" //@ {instruction.role} {origin.component} {origin.file}:{origin.line}"
    return f"{pad}{text}".ljust(_ORIGIN_COLUMN) + comment


def _descriptor(trace: Trace, abi: KernelAbi, allocation: Allocation) -> list[str]:
    """The kernel descriptor (LLVM, User Guide for AMDGPU, Kernel Descriptor)."""
    fields = {
        "group_segment_fixed_size": trace.shared.size,
        "private_segment_fixed_size": 0,
        "kernarg_size": abi.size,
        "user_sgpr_count": USER_SGPRS,
        "user_sgpr_kernarg_segment_ptr": 1,
        "system_sgpr_workgroup_id_x": 1,
        "system_sgpr_workgroup_id_y": 0,
        "system_sgpr_workgroup_id_z": 0,
        "system_vgpr_workitem_id": 0,
        "next_free_vgpr": allocation.next_free_vgpr,
        "accum_offset": allocation.accum_offset,
        "next_free_sgpr": allocation.next_free_sgpr,
        "reserve_vcc": 1,
        "float_denorm_mode_32": 3,  # kept, as PTX does without .ftz
        "float_denorm_mode_16_64": 3,
        "dx10_clamp": 0,
        "ieee_mode": 0,  # minima pass over NaN, signalling ones too
    }
    return [
        ".rodata",
        ".p2align 6",
        f".amdhsa_kernel {trace.name}",
        *(f"    .amdhsa_{name} {value}" for name, value in fields.items()),
        ".end_amdhsa_kernel",
    ]


def _metadata(trace: Trace, abi: KernelAbi, allocation: Allocation) -> list[str]:
    """What the runtime reads: arguments and resources."""
    arguments = []
    for argument in abi.arguments:
        entry = {
            ".name": argument.name,
            ".offset": argument.offset,
            ".size": argument.size,
            ".value_kind": argument.kind,
            ".address_space": argument.address_space,
        }
        shown = [f"{key}: {value}" for key, value in entry.items() if value != ""]
        arguments += [f"      {'- ' if i == 0 else '  '}{line}" for i, line in enumerate(shown)]
    kernel = {
        ".name": trace.name,
        ".symbol": f"{trace.name}.kd",
        ".kernarg_segment_size": abi.size,
        ".kernarg_segment_align": 8,
        ".group_segment_fixed_size": trace.shared.size,
        ".private_segment_fixed_size": 0,
        ".wavefront_size": trace.target.lanes,
        ".max_flat_workgroup_size": trace.threads,
        ".sgpr_count": allocation.next_free_sgpr,
        ".vgpr_count": allocation.next_free_vgpr,
        ".agpr_count": allocation.agprs,
    }
    shown = [f"{key}: {value}" for key, value in kernel.items()]
    return [
        ".amdgpu_metadata",
        "---",
        "amdhsa.version: [1, 2]",
        "amdhsa.kernels:",
        *(f"  {'- ' if i == 0 else '  '}{line}" for i, line in enumerate(shown)),
        *(["    .args:", *arguments] if arguments else ["    .args: []"]),
        "...",
        ".end_amdgpu_metadata",
    ]
