"""Register types: what a traced value is, and which fragment operands it may stand for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RegisterType:
    """One type of virtual register.

    Attributes
    ----------
    name
        The name fragments use in their headers.
    declared
        The PTX type in the ``.reg`` directive.
    bits
        Width; a predicate has 1.
    arithmetic
        The PTX type suffix of arithmetic on it, or ``None`` where arithmetic makes no sense.
    space
        The memory space a value of this type addresses, if it is an address.
    """

    name: str
    declared: str
    bits: int
    arithmetic: str | None
    space: str | None = None

    def __str__(self) -> str:
        return self.name

    @property
    def suffix(self) -> str:
        """The PTX type suffix of moves, choices and parameters."""
        return self.arithmetic or self.bit_suffix

    @property
    def bit_suffix(self) -> str:
        """The PTX type suffix of bitwise instructions."""
        return "pred" if self.declared == "pred" else f"b{self.bits}"


PRED = RegisterType("pred", "pred", 1, None)
B16 = RegisterType("b16", "b16", 16, None)
U32 = RegisterType("u32", "b32", 32, "u32")
S32 = RegisterType("s32", "b32", 32, "s32")
B32 = RegisterType("b32", "b32", 32, None)
U64 = RegisterType("u64", "b64", 64, "u64")
F32 = RegisterType("f32", "f32", 32, "f32")
SMEM = RegisterType("smem", "b32", 32, "u32", space="shared::cta")
DSMEM = RegisterType("dsmem", "b32", 32, "u32", space="shared::cluster")
TMEM = RegisterType("tmem", "b32", 32, "u32", space="tensor")
GMEM = RegisterType("gmem", "b64", 64, "u64", space="global")
MAP = RegisterType("map", "b64", 64, None, space="tensor map")
DESC = RegisterType("desc", "b64", 64, None)

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
