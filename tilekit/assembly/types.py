"""Register types: what a traced value is, and which fragment operands it may stand for. No instruction set's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["predicate", "bits", "unsigned", "signed", "float"]


@dataclass(frozen=True)
class RegisterType:
    """One type of register.

    Attributes
    ----------
    name
        The name fragments use in their headers.
    kind
        What its bits are: a predicate, bits without arithmetic, or a number.
    bits
        Width; a predicate has 1.
    space
        The memory space a value of this type addresses, if it is an address.
    """

    name: str
    kind: Kind
    bits: int
    space: str | None = None

    def __hash__(self) -> int:
        """Types differ by their names."""
        return hash(self.name)

    def __str__(self) -> str:
        return self.name

    @property
    def is_number(self) -> bool:
        """Whether arithmetic on it makes sense."""
        return self.kind in ("unsigned", "signed", "float")

    def shares_registers(self, other: RegisterType) -> bool:
        """Whether a register of one type may be read as one of the other without a conversion."""
        return self is other or (self.bits == other.bits and (self.kind == "float") == (other.kind == "float"))


PRED = RegisterType("pred", "predicate", 1)
B16 = RegisterType("b16", "bits", 16)
U32 = RegisterType("u32", "unsigned", 32)
S32 = RegisterType("s32", "signed", 32)
B32 = RegisterType("b32", "bits", 32)
U64 = RegisterType("u64", "unsigned", 64)
F32 = RegisterType("f32", "float", 32)
SMEM = RegisterType("smem", "unsigned", 32, space="shared")
DSMEM = RegisterType("dsmem", "unsigned", 32, space="shared of the cluster")
TMEM = RegisterType("tmem", "unsigned", 32, space="tensor")
GMEM = RegisterType("gmem", "unsigned", 64, space="global")
MAP = RegisterType("map", "bits", 64, space="tensor map")
DESC = RegisterType("desc", "bits", 64)

PARAMETER_TYPES = (U32, S32, B32, U64, F32, GMEM, B16)
"""What a kernel parameter may be that is one register; a tensor map is none."""

REGISTER_TYPES = {t.name: t for t in (PRED, B16, U32, S32, B32, U64, F32, SMEM, DSMEM, TMEM, GMEM, MAP, DESC)}

# What a fragment operand of the keyed type also takes. A CTA's own shared address is a valid shared::cluster address
# (PTX ISA 5.1.7), so an `smem` value may stand where a `dsmem` one is asked for; never the other way round.
_ALSO_TAKES = {
    "b32": {"u32", "s32", "f32"},
    "u32": {"s32", "b32"},
    "s32": {"u32", "b32"},
    "u64": {"gmem", "desc"},
    "dsmem": {"smem"},
}


def accepts(wanted: RegisterType, given: RegisterType) -> bool:
    """Whether a value of type `given` may be passed where a fragment asks for `wanted`."""
    return given.name == wanted.name or given.name in _ALSO_TAKES.get(wanted.name, set())
