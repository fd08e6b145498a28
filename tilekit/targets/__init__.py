"""What each chip has: the limits a kernel's budgets are checked against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from tilekit.annotations import Accepts
from tilekit.emulator.core.errors import shown
from tilekit.errors import ArgumentError


@dataclass(frozen=True)
class Target:
    """One chip.

    Attributes
    ----------
    name
        As the assembler spells it (``sm_90a``).
    product
        A product that has it; `multiprocessors` and `boost_mhz` are that product's, and serve estimates only.
    shared_bytes
        Shared memory one CTA may use.
    registers
        32-bit registers of a multiprocessor.
    max_threads
        Threads of a CTA.
    max_cluster
        CTAs of a cluster that every device of the target accepts.
    tensor_columns
        Columns of tensor memory, 128 lanes of 32 bits each; 0 where there is none.
    transposed_bits
        Widths of the elements that the matrix instruction reads where M or N is contiguous: for wgmma 16 (PTX ISA,
        wgmma.mma_async, imm-trans), for tcgen05 8, 16 and 32 (tcgen05.mma, Instruction descriptor).
    """

    name: str
    product: str
    multiprocessors: int
    boost_mhz: int
    shared_bytes: int
    registers: int
    max_threads: int
    max_cluster: int
    compute_capability: tuple[int, int]
    tensor_columns: int = 0
    transposed_bits: tuple[int, ...] = (16,)


SM_90A = Target(
    name="sm_90a",
    product="H200",
    multiprocessors=132,
    boost_mhz=1980,
    shared_bytes=232_448,
    registers=65_536,
    max_threads=1024,
    max_cluster=8,
    compute_capability=(9, 0),
)

SM_100A = Target(
    name="sm_100a",
    product="B200",
    multiprocessors=148,
    boost_mhz=1850,
    shared_bytes=232_448,
    registers=65_536,
    max_threads=1024,
    max_cluster=8,
    compute_capability=(10, 0),
    tensor_columns=512,
    transposed_bits=(8, 16, 32),
)

TARGETS = {t.name: t for t in (SM_90A, SM_100A)}


_CHIPS: Final = " or ".join(map(repr, TARGETS))
_CODE: Final = "TK-TARGET-001"

ChipName = Annotated[str, Accepts(_CHIPS, _CODE)]
"""The name of a chip, as an argument."""

PlaceName = Annotated[str, Accepts(f"{_CHIPS}, or 'cuda' for arrays in host memory", _CODE)]
"""Where a product of arrays is computed, as an argument."""


def target(name: str) -> Target:
    """Return the target called `name`.

    Raises
    ------
    ArgumentError
        Naming the targets there are.
    """
    if not isinstance(name, str) or name not in TARGETS:
        raise ArgumentError(
            f"target={shown(name)} is not a target tilekit builds kernels for; there is {', '.join(TARGETS)}",
            code=_CODE,
        )
    return TARGETS[name]
