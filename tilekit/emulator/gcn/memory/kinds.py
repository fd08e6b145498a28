"""The forms of vector memory accesses: bytes a lane, registers, and what becomes of narrow data."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ATOMICS", "FORMS", "Atomic", "Form", "atomic_form"]


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """One form of loads and stores.

    Attributes
    ----------
    size
        Bytes a lane.
    registers
        How many it moves.
    signed
        Whether narrow data is sign extended.
    part
        0 for a whole register; 1 and 2 where the low or the high half is moved and a load leaves the other half.
    """

    size: int
    registers: int = 1
    signed: bool = False
    part: int = 0


FORMS = {
    "dword": Form(4), "dwordx2": Form(8, 2), "dwordx3": Form(12, 3), "dwordx4": Form(16, 4),
    "ubyte": Form(1), "sbyte": Form(1, signed=True), "ushort": Form(2), "sshort": Form(2, signed=True),
    "ubyte_d16": Form(1, part=1), "ubyte_d16_hi": Form(1, part=2),
    "sbyte_d16": Form(1, signed=True, part=1), "sbyte_d16_hi": Form(1, signed=True, part=2),
    "short_d16": Form(2, part=1), "short_d16_hi": Form(2, part=2),
}  # fmt: skip
"""By the end of the mnemonic."""


@dataclass(frozen=True, slots=True, eq=False)
class Atomic:
    """One atomic operation.

    Attributes
    ----------
    operation
        Such as ``add`` or ``smax``.
    kind
        NumPy type of the values; ``pair`` types are two halves of a register.
    """

    operation: str
    kind: str

    @property
    def registers(self) -> int:
        """Of one value."""
        return 2 if self.kind in ("u8", "i8", "f8") else 1

    @property
    def size(self) -> int:
        """Bytes of one value."""
        return 4 * self.registers

    @property
    def compares(self) -> bool:
        """Whether it takes a value to compare with."""
        return self.operation == "cmpswap"


_INTEGERS = {
    "swap": "u", "cmpswap": "u", "add": "u", "sub": "u", "smin": "i", "smax": "i", "umin": "u", "umax": "u", "and": "u",
    "or": "u", "xor": "u", "inc": "u", "dec": "u",
}  # fmt: skip
ATOMICS = {
    **{name: Atomic(name.lstrip("su") if name[1:] in ("min", "max") else name, f"{kind}4")
       for name, kind in _INTEGERS.items()},
    **{f"{name}_x2": Atomic(name.lstrip("su") if name[1:] in ("min", "max") else name, f"{kind}8")
       for name, kind in _INTEGERS.items()},
    "add_f32": Atomic("add", "f4"), "add_f64": Atomic("add", "f8"), "min_f64": Atomic("min", "f8"),
    "max_f64": Atomic("max", "f8"), "pk_add_f16": Atomic("add", "pair_f16"), "pk_add_bf16": Atomic("add", "pair_bf16"),
}  # fmt: skip
"""By the end of the mnemonic."""


def atomic_form(name: str) -> Atomic:
    """Return the atomic operation of that name."""
    return ATOMICS[name]
