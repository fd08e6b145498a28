"""What the text itself says of a wave's registers: enough to know which way its branches go.

Numbers of the wave and of its lanes are known, arguments and memory are not. A scalar register is a number or unknown,
a vector register 64 numbers or unknown; an instruction that is not followed here makes what it writes unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tilekit.emulator.gcn.compiler.effects import Effects
from tilekit.emulator.gcn.language.syntax import EXEC, VCC, Constant, Instruction, Off, Operand, Register
from tilekit.emulator.gcn.memory.outstanding import SCALARS

__all__ = ["Values"]

Lanes = npt.NDArray[np.uint32]
_WORD: Final = 0xFFFFFFFF
_ALL: Final = (1 << 64) - 1


def _signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value


_SCALAR: dict[str, Callable[[int, int], int]] = {
    "s_add": lambda a, b: a + b, "s_sub": lambda a, b: a - b, "s_and": lambda a, b: a & b, "s_or": lambda a, b: a | b,
    "s_xor": lambda a, b: a ^ b, "s_lshl": lambda a, b: a << (b & 31), "s_lshr": lambda a, b: a >> (b & 31),
    "s_mul": lambda a, b: a * b, "s_andn2": lambda a, b: a & ~b,
    "s_bfe": lambda a, b: a >> (b & 31) & ((1 << (b >> 16 & 127)) - 1),
}  # fmt: skip
_VECTOR: dict[str, Callable[..., Any]] = {
    "v_mov_b32": lambda a: a, "v_bfe_u32": lambda a, b, c: (a >> (b & 31)) & ((np.uint32(1) << (c & 31)) - 1),
    "v_add_u32": lambda a, b: a + b, "v_sub_u32": lambda a, b: a - b, "v_and_b32": lambda a, b: a & b,
    "v_or_b32": lambda a, b: a | b, "v_xor_b32": lambda a, b: a ^ b, "v_lshrrev_b32": lambda a, b: b >> (a & 31),
    "v_lshlrev_b32": lambda a, b: b << (a & 31), "v_subrev_u32": lambda a, b: b - a,
    "v_min_u32": lambda a, b: np.minimum(a, b), "v_max_u32": lambda a, b: np.maximum(a, b),
}  # fmt: skip
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "eq": lambda a, b: a == b, "lg": lambda a, b: a != b, "ne": lambda a, b: a != b, "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
}  # fmt: skip
_SCALAR_OPERATION = re.compile(r"(s_(?:add|sub|and|or|xor|lshl|lshr|mul|andn2|bfe))_(?:[biu]32)$")
_SCALAR_COMPARE = re.compile(r"s_cmpk?_(eq|lg|gt|ge|lt|le)_([iu])32$")
_VECTOR_COMPARE = re.compile(r"v_cmp(x?)_(eq|ne|gt|ge|lt|le)_([iu])32$")
_KEEPS_SCC = ("s_mov", "s_cselect", "s_cbranch", "s_branch", "s_waitcnt", "s_barrier", "s_nop", "s_set", "s_load",
              "s_buffer_load", "s_sleep", "s_mul", "s_cmov", "s_pack", "s_brev", "s_movk", "s_getreg")  # fmt: skip


class Values:
    """The registers of one wave, as far as they are known.

    Parameters
    ----------
    wave
        Its number in the workgroup.
    effects
        What an instruction reads and writes.
    """

    def __init__(self, wave: int, effects: Callable[[Instruction], Effects]) -> None:
        self.effects = effects
        self.scalars: dict[int, int] = {EXEC: _WORD, EXEC + 1: _WORD}
        self.vectors: dict[int, Lanes] = {0: np.arange(64, dtype=np.uint32) + np.uint32(64 * wave)}
        self.scc: bool | None = None

    def forget(self, i: Instruction) -> None:
        """Make unknown what an instruction writes."""
        found = self.effects(i)
        written = found.writes | found.load
        if written:
            for number in [number for number in self.vectors if written >> number & 1]:
                del self.vectors[number]
            for number in [number for number in self.scalars if written >> (SCALARS + number) & 1]:
                del self.scalars[number]
        if i.name.startswith("s_") and not i.name.startswith(_KEEPS_SCC):
            self.scc = None
        if "saveexec" in i.name or i.name.startswith("v_cmpx"):
            self.scalars.pop(EXEC, None)
            self.scalars.pop(EXEC + 1, None)

    def taken(self, i: Instruction) -> bool | None:
        """Whether a branch is taken; None where the text does not say."""
        looked_at = i.name.removeprefix("s_cbranch_")
        if looked_at.startswith("scc"):
            return None if self.scc is None else self.scc == (looked_at == "scc1")
        mask = self._wide(VCC if looked_at.startswith("vcc") else EXEC)
        return None if mask is None else (mask != 0) == looked_at.endswith("nz")

    def follow(self, i: Instruction) -> None:
        """Execute an instruction as far as its operands are known."""
        result = self._scalar(i) if i.name.startswith("s_") else self._vector(i) if i.name.startswith("v_") else None
        if result is None:
            self.forget(i)
            return
        result()

    # -- operands ----------------------------------------------------------------------------------------------------

    def _wide(self, number: int) -> int | None:
        low, high = self.scalars.get(number), self.scalars.get(number + 1)
        return None if low is None or high is None else low | high << 32

    def _number(self, operand: Operand) -> int | None:
        if isinstance(operand, Constant):
            return operand.value & _WORD if isinstance(operand.value, int) else None
        if isinstance(operand, Register) and operand.file == "s" and operand.count == 1 and not operand.negate:
            return self.scalars.get(operand.first)
        return None

    def _mask(self, operand: Operand) -> int | None:
        if isinstance(operand, Constant):
            return operand.value & _ALL if isinstance(operand.value, int) else None
        if isinstance(operand, Register) and operand.file == "s" and operand.count == 2:
            return self._wide(operand.first)
        return None

    def _lanes(self, operand: Operand) -> Lanes | None:
        if isinstance(operand, Register) and operand.file == "v" and operand.count == 1 and not operand.negate:
            return self.vectors.get(operand.first)
        number = self._number(operand)
        return None if number is None else np.full(64, number, np.uint32)

    def _set(self, operand: Operand, value: int, *scc: bool | None) -> Callable[[], None] | None:
        """The change of a scalar register, and of SCC if one is given."""
        if not isinstance(operand, Register) or operand.file != "s":
            return None

        def change() -> None:
            for word in range(operand.count):
                self.scalars[operand.first + word] = value >> 32 * word & _WORD
            if scc:
                self.scc = scc[0]

        return change

    # -- instructions ------------------------------------------------------------------------------------------------

    def _scalar(self, i: Instruction) -> Callable[[], None] | None:
        """What a scalar instruction changes; None where that is not known."""
        name, operands = i.name, (*i.operands, Off(), Off(), Off())
        if match := _SCALAR_COMPARE.match(name):
            a, b = self._number(operands[0]), self._number(operands[1])
            if a is None or b is None:
                return None
            truth = bool(_COMPARE[match[1]](*((a, b) if match[2] == "u" else (_signed(a), _signed(b)))))
            return lambda: setattr(self, "scc", truth)
        if name in ("s_cmp_eq_u64", "s_cmp_lg_u64"):
            a, b = self._mask(operands[0]), self._mask(operands[1])
            same = a == b
            return None if a is None or b is None else lambda: setattr(self, "scc", same == (name == "s_cmp_eq_u64"))
        if name in ("s_mov_b32", "s_movk_i32", "s_mov_b64"):
            value = (self._mask if name.endswith("64") else self._number)(operands[1])
            return None if value is None else self._set(operands[0], value)
        if name in ("s_cselect_b32", "s_cselect_b64") and self.scc is not None:
            value = (self._mask if name.endswith("64") else self._number)(operands[1 if self.scc else 2])
            return None if value is None else self._set(operands[0], value)
        if match := _SCALAR_OPERATION.match(name):
            a, b = self._number(operands[1]), self._number(operands[2])
            if a is None or b is None:
                return None
            value = _SCALAR[match[1]](a, b)
            if match[1] == "s_mul":
                return self._set(operands[0], value & _WORD)
            adds = match[1] in ("s_add", "s_sub")
            carry = not 0 <= value <= _WORD if name.endswith("u32") else None
            return self._set(operands[0], value & _WORD, carry if adds else bool(value & _WORD))
        if name in ("s_and_saveexec_b64", "s_and_b64", "s_andn2_b64", "s_or_b64"):
            return self._masks(i)
        return None

    def _masks(self, i: Instruction) -> Callable[[], None] | None:
        saves, operands = "saveexec" in i.name, (*i.operands, Off(), Off(), Off())
        a = self._mask(operands[1])
        b = self._wide(EXEC) if saves else self._mask(operands[2])
        if a is None or b is None:
            return None
        value = a & ~b if i.name.startswith("s_andn2") else a | b if i.name.startswith("s_or") else a & b
        change = self._set(Register("s", EXEC, 2) if saves else operands[0], value & _ALL, bool(value & _ALL))
        if not saves:
            return change
        saved = self._set(operands[0], b)
        if saved is None or change is None:
            return None
        return lambda: (saved(), change())[0]

    def _vector(self, i: Instruction) -> Callable[[], None] | None:
        """What a vector instruction changes; None where that is not known."""
        name, operands = i.name, (*i.operands, Off(), Off(), Off())
        if i.encoding in ("sdwa", "dpp", "e64_dpp") or self._wide(EXEC) is None:
            return None
        if name == "v_readfirstlane_b32":
            lanes, active = self._lanes(operands[1]), self._wide(EXEC) or 1
            return None if lanes is None else self._set(operands[0], int(lanes[(active & -active).bit_length() - 1]))
        if match := _VECTOR_COMPARE.match(name):
            return self._compare(i, match)
        function = _VECTOR.get(name)
        if function is None:
            return None
        target = operands[0]
        sources = [self._lanes(operand) for operand in operands[1 : 1 + function.__code__.co_argcount]]
        if self._wide(EXEC) != _ALL or not isinstance(target, Register) or any(source is None for source in sources):
            return None
        value = function(*sources)
        return lambda: self.vectors.__setitem__(target.first, value)

    def _compare(self, i: Instruction, match: re.Match[str]) -> Callable[[], None] | None:
        operands = i.operands
        if len(operands) < 2:
            return None
        a, b = self._lanes(operands[-2]), self._lanes(operands[-1])
        if a is None or b is None or match[1]:
            return None
        kind = np.int32 if match[3] == "i" else np.uint32
        lanes = _COMPARE[match[2]](a.view(kind), b.view(kind))
        mask = sum(1 << lane for lane in range(64) if lanes[lane]) & (self._wide(EXEC) or 0)
        return self._set(operands[0] if len(operands) == 3 else Register("s", VCC, 2), mask)
