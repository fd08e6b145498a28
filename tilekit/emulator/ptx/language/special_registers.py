"""The read-only machine registers (PTX ISA, section 10), their width and who shares their value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tilekit.emulator.core.memory.memory import RESERVED_SHARED


class SpecialRegisterInfo(NamedTuple):
    """Width in bits, whether all lanes of a warp see one value, and the attribute of the running warp that holds it."""

    bits: int
    uniform: bool
    expression: str


def _triple(name: str, expression: str, uniform: bool = True) -> dict[str, SpecialRegisterInfo]:
    """A vector of three coordinates, and a fourth component that is always 0."""
    coordinates = {
        f"%{name}.{axis}": SpecialRegisterInfo(32, uniform, f"{expression}[{index}]")
        for index, axis in enumerate("xyz")
    }
    return {**coordinates, f"%{name}.w": SpecialRegisterInfo(32, True, "0")}


SPECIAL_REGISTERS: dict[str, SpecialRegisterInfo] = {
    **_triple("tid", "w.tid", uniform=False),
    **_triple("ntid", "w.cta.launch.block"),
    **_triple("ctaid", "w.cta.index"),
    **_triple("nctaid", "w.cta.launch.grid"),
    **_triple("clusterid", "w.cta.cluster.index"),
    **_triple("nclusterid", "w.cta.launch.clusters"),
    **_triple("cluster_ctaid", "w.cta.index_in_cluster"),
    **_triple("cluster_nctaid", "w.cta.launch.cluster"),
    "%laneid": SpecialRegisterInfo(32, False, "LANES"),
    "%warpid": SpecialRegisterInfo(32, True, "w.index"),
    "%nwarpid": SpecialRegisterInfo(32, True, "w.cta.launch.chip.warps_per_sm"),
    "%cluster_ctarank": SpecialRegisterInfo(32, True, "w.cta.rank"),
    "%cluster_nctarank": SpecialRegisterInfo(32, True, "len(w.cta.cluster.ctas)"),
    "%is_explicit_cluster": SpecialRegisterInfo(1, True, "w.cta.launch.explicit_cluster"),
    "%smid": SpecialRegisterInfo(32, True, "w.cta.sm"),
    "%nsmid": SpecialRegisterInfo(32, True, "w.cta.launch.chip.sms"),
    "%gridid": SpecialRegisterInfo(64, True, "w.cta.launch.number"),
    "%lanemask_eq": SpecialRegisterInfo(32, False, "LANEMASK_EQ"),
    "%lanemask_le": SpecialRegisterInfo(32, False, "LANEMASK_LE"),
    "%lanemask_lt": SpecialRegisterInfo(32, False, "LANEMASK_LT"),
    "%lanemask_ge": SpecialRegisterInfo(32, False, "LANEMASK_GE"),
    "%lanemask_gt": SpecialRegisterInfo(32, False, "LANEMASK_GT"),
    "%clock": SpecialRegisterInfo(32, True, "w.clock() & 0xffffffff"),
    "%clock_hi": SpecialRegisterInfo(32, True, "w.clock() >> 32"),
    "%clock64": SpecialRegisterInfo(64, True, "w.clock()"),
    "%globaltimer": SpecialRegisterInfo(64, True, "w.clock()"),
    "%globaltimer_lo": SpecialRegisterInfo(32, True, "w.clock() & 0xffffffff"),
    "%globaltimer_hi": SpecialRegisterInfo(32, True, "w.clock() >> 32"),
    "%dynamic_smem_size": SpecialRegisterInfo(32, True, "w.cta.launch.shared_bytes"),
    "%total_smem_size": SpecialRegisterInfo(32, True, "w.cta.launch.total_shared_bytes"),
    "%aggr_smem_size": SpecialRegisterInfo(32, True, "w.cta.launch.total_shared_bytes"),
    "%reserved_smem_offset_begin": SpecialRegisterInfo(32, True, "0"),
    "%reserved_smem_offset_end": SpecialRegisterInfo(32, True, str(RESERVED_SHARED)),
    "%reserved_smem_offset_cap": SpecialRegisterInfo(32, True, str(RESERVED_SHARED)),
    "%reserved_smem_offset_0": SpecialRegisterInfo(32, True, "0"),
    "%reserved_smem_offset_1": SpecialRegisterInfo(32, True, "0"),
    "%current_graph_exec": SpecialRegisterInfo(64, True, "0"),  # no graph is running
    **{f"%envreg{n}": SpecialRegisterInfo(32, True, "0") for n in range(32)},  # the driver sets two, for this_grid()
    "%envreg1": SpecialRegisterInfo(32, True, "w.cta.launch.workspace_address >> 32"),
    "%envreg2": SpecialRegisterInfo(32, True, "w.cta.launch.workspace_address & 0xffffffff"),
    **{f"%pm{n}": SpecialRegisterInfo(32, True, "0") for n in range(8)},  # nothing is counted
    **{f"%pm{n}_64": SpecialRegisterInfo(64, True, "0") for n in range(8)},
}
"""As one warp sees them."""

IN_LOCKSTEP: Mapping[str, SpecialRegisterInfo] = {
    **SPECIAL_REGISTERS,
    **_triple("ctaid", "w.ctaid", uniform=False),
    "%warpid": SpecialRegisterInfo(32, False, "w.warpid"),
}
"""As many warps of different CTAs see them that run together."""
