"""The figures of a compute unit, each with its source; those of which none is published are marked as assumed."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

__all__ = ["FIGURES", "PEAK", "Figure", "Machine"]


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of the model.

    Attributes
    ----------
    name
        The field of `Machine` that holds it.
    what
        In words, with its unit.
    gfx942, gfx950
        Its value on either chip.
    source
        Where it is from.
    assumed
        Chips for which it is a guess.
    """

    name: str
    what: str
    gfx942: int
    gfx950: int
    source: str
    assumed: tuple[str, ...] = ()


_BOTH: Final = ("gfx942", "gfx950")
_ISA = "CDNA3 and CDNA4 ISA"
_LDS = "gfx950-gluon-tutorials, docs/lds_throughput.md"
_ATTENTION = "gfx950-gluon-tutorials, kernels/attention"
_LOADS = "gfx950-gluon-tutorials, docs/tcp_bound_tile_model.md"
_SLICED = "gfx950-gluon-tutorials, kernels/gemm/intra_wave/a16w16/v8_sliceMN"
_LLVM = "LLVM's scheduling model (SISchedule.td)"

FIGURES: Final = (
    Figure("simds", "SIMDs of a compute unit; wave w runs on SIMD w mod 4", 4, 4, _ISA),
    Figure("issue", "clocks from an instruction of a wave to its next", 4, 4, _ISA),
    Figure("matrix_pass", "clocks of a pass of the matrix core", 4, 4, _ISA),
    Figure("matrix_read", "clocks that an MFMA keeps the vector port, for two registers of its widest factor", 4, 4,
           f"gfx942: AITER's attention has 7 VALU instructions in 32 clocks; gfx950: {_ATTENTION}"),
    Figure("matrix_result", "clocks from an MFMA's last pass to other readers of its result", 16, 20,
           "LLVM 22's hazard recogniser: passes + 3 and + 4 wait states"),
    Figure("packed_after_matrix", "clocks from the end of a wave's MFMA to its next packed f32 instruction", 12, 12,
           _ATTENTION, ("gfx942",)),
    Figure("vector", "clocks of a VALU instruction", 4, 4, _ISA),
    Figure("transcendental", "clocks of v_exp_f32 and its like", 16, 8, f"{_LLVM}; gfx950: {_ATTENTION}"),
    Figure("quarter_rate", "clocks of a 32-bit multiplication of integers", 16, 16, _LLVM),
    Figure("lane_swap", "clocks of v_permlane16_swap and v_permlane32_swap", 8, 8, "published as 4 to 8", _BOTH),
    Figure("scalar_load", "clocks from s_load to its data", 200, 200, "a guess", _BOTH),
    Figure("branch", "clocks from a branch that is taken to the next instruction", 32, 32,
           f"{_LLVM}: 8 issue slots", _BOTH),
    Figure("barrier", "clocks from the last arrival at s_barrier to the next instruction", 8, 8,
           "a guess: with more, ping-pong loses more than was measured", _BOTH),
    Figure("lds_bytes", "bytes that LDS reads a clock", 128, 256, "CDNA3 and CDNA4 white papers"),
    Figure("lds_write_bytes", "bytes that ds_write writes a clock: 8 lanes of 16 bytes at once", 128, 128,
           "HipKittens, bank tables", ("gfx950",)),
    Figure("lds_bus", "bytes a clock between LDS and a pair of SIMDs", 64, 128, _LDS, ("gfx942",)),
    Figure("lds_queue", "LDS instructions in flight for a pair of SIMDs", 8, 8, _LDS, ("gfx942",)),
    Figure("lds_latency", "clocks from ds_read to the first data of an idle LDS", 56, 56, f"{_LDS}: 50 to 70",
           ("gfx942",)),
    Figure("load_dword", "clocks of the vector L1 for a load of 4 bytes a lane", 4, 4, _SLICED, ("gfx942",)),
    Figure("load_wide", "clocks of the vector L1 for a load of 8 to 16 bytes a lane", 16, 16, _SLICED, ("gfx942",)),
    Figure("load_queue", "loads that wait for the vector L1", 12, 12, _SLICED, ("gfx942",)),
    Figure("load_latency", "clocks from a load to its data, mostly in L2", 1000, 1000, _LOADS, ("gfx942",)),
    Figure("load_flight", "bytes of loads in flight: 32 KB of L1 and the queue", 45056, 45056, _LOADS,
           ("gfx942",)),
)  # fmt: skip
"""Every figure of the model. Clocks are those of the compute unit."""

PEAK: Final = {
    "gfx942": {16: 2048, 8: 4096, 32: 256, 64: 256},
    "gfx950": {16: 4096, 8: 8192, 6: 16384, 4: 16384, 32: 256, 64: 128},
}
"""FLOP a clock of a compute unit's matrix cores, by bits of the wider factor; xf32 has four times float32's."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A compute unit, as the model sees it: the figures of one chip.

    Attributes
    ----------
    chip
        Its name; `FIGURES` says what the others are.
    """

    chip: str
    simds: int
    issue: int
    matrix_pass: int
    matrix_read: int
    matrix_result: int
    packed_after_matrix: int
    vector: int
    transcendental: int
    quarter_rate: int
    lane_swap: int
    scalar_load: int
    branch: int
    barrier: int
    lds_bytes: int
    lds_write_bytes: int
    lds_bus: int
    lds_queue: int
    lds_latency: int
    load_dword: int
    load_wide: int
    load_queue: int
    load_latency: int
    load_flight: int

    @classmethod
    def of(cls, chip: str, **changes: int) -> Machine:
        """Return the figures of a chip, with some of them replaced.

        Parameters
        ----------
        chip
            ``gfx942`` or ``gfx950``.
        **changes
            Figures by name.
        """
        own = {figure.name: int(getattr(figure, chip)) for figure in FIGURES}
        return cls(chip, **{**own, **changes})


assert [field.name for field in fields(Machine)][1:] == [figure.name for figure in FIGURES]
