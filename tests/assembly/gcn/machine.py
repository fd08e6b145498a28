"""Kernels before they are finished, with what each instruction means: a `Code` that NumPy can execute.

Registers are unlimited and every memory access is complete at once, so what `run` leaves in memory is what the
finished text must leave there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilekit.assembly.gcn.code import Branch, Code, Commit, Instruction, Label, Part, Virtual, Wait

LANES = 64
Array = np.ndarray[Any, Any]
Meaning = Callable[["Machine"], None]


def whole(register: Virtual) -> Part:
    """All words of a register."""
    return Part(register, 0, register.words)


class Machine:
    """One wave: registers by name, EXEC, SCC and VCC as they are, memory as bytes' words."""

    def __init__(self, number: int, inputs: Array, output: Array, lds: Array) -> None:
        self.number = number
        self.inputs, self.output, self.lds = inputs, output, lds
        self.vectors: dict[Virtual, Array] = {}
        self.scalars: dict[Virtual, list[int]] = {}
        self.exec = np.ones(LANES, bool)
        self.scc = False
        self.vcc = np.zeros(LANES, bool)

    def read(self, part: Part) -> Array:
        """uint32[words, 64] of a vector, uint32[words, 1] of a scalar."""
        register = part.register
        if register.file == "scalar":
            words = self.scalars[register][part.first : part.first + part.words]
            return np.array(words, np.uint32)[:, None]
        return self._of(register)[part.first : part.first + part.words].copy()

    def write(self, part: Part, value: Array, *, masked: bool = True) -> None:
        """Write active lanes, or all of them."""
        lanes = self.exec if masked else np.ones(LANES, bool)
        rows = self._of(part.register)[part.first : part.first + part.words]
        rows[:, lanes] = np.broadcast_to(np.asarray(value, np.uint32), rows.shape)[:, lanes]

    def put(self, part: Part, *words: int) -> None:
        """Write a scalar."""
        held = self.scalars.setdefault(part.register, [0xBAD] * part.register.words)
        held[part.first : part.first + part.words] = [word & 0xFFFFFFFF for word in words]

    def mask(self, part: Part) -> Array:
        """A pair of scalars as lanes."""
        low, high = self.scalars[part.register]
        return np.array([(low | high << 32) >> lane & 1 for lane in range(LANES)], bool)

    def put_mask(self, part: Part, lanes: Array) -> None:
        """Write lanes to a pair of scalars."""
        value = sum(1 << int(lane) for lane in np.flatnonzero(lanes))
        self.put(part, value & 0xFFFFFFFF, value >> 32)

    def _of(self, register: Virtual) -> Array:
        return self.vectors.setdefault(register, np.full((register.words, LANES), 0xBAD0BAD0, np.uint32))


class Kernel:
    """A `Code` under construction, and the meaning of its instructions.

    Attributes
    ----------
    branches
        Which way the conditional ones went in the last `run`, one by one.
    """

    def __init__(self) -> None:
        self.code = Code()
        self.meanings: dict[int, Meaning] = {}
        self.conditions: dict[int, Callable[[Machine], bool]] = {}
        self.narrow = 0  # how many regions that not all lanes run are open
        self.branches: list[bool] = []
        self._labels = 0

    def op(
        self,
        text: str,
        writes: tuple[Virtual | Part, ...],
        reads: tuple[Virtual | Part, ...],
        meaning: Meaning,
        *,
        operands: tuple[Virtual | Part, ...] | None = None,
        **more: Any,
    ) -> Instruction:
        """Add an instruction; its operands are what it writes, then what it reads, unless given."""
        written, read = _parts(writes), _parts(reads)
        spelled = _parts(operands) if operands is not None else (*written, *read)
        more.setdefault("partial", self.narrow > 0 and not text.startswith("s_"))
        for name in ("vcc", "exec", "scc", "m0"):
            if name in more.pop("changes", ()) or (name == "scc" and text.startswith(("s_cmp", "s_add", "s_sub"))):
                more["clobbers"] = more.get("clobbers", frozenset()) | {name}
        instruction = Instruction(text, spelled, read, written, **more)
        self.meanings[id(instruction)] = meaning
        self.code.items.append(instruction)
        return instruction

    def label(self) -> Label:
        """A label that is not placed yet."""
        self._labels += 1
        return Label(f"L{self._labels}")

    def place(self, label: Label) -> None:
        """Place a label here."""
        self.code.items.append(label)

    def branch(self, label: Label, condition: str | None, holds: Callable[[Machine], bool]) -> None:
        """Add a branch."""
        branch = Branch(label.name, condition)
        self.conditions[id(branch)] = holds
        self.code.items.append(branch)

    def end(self) -> Code:
        """End the kernel."""
        self.code.items.append(Instruction("s_endpgm"))
        return self.code

    def run(self, machine: Machine, most: int = 200_000) -> None:
        """Execute it for one wave."""
        at = {item.name: index for index, item in enumerate(self.code.items) if isinstance(item, Label)}
        self.branches = []
        index = 0
        for _ in range(most):
            item = self.code.items[index]
            index += 1
            if isinstance(item, Branch):
                taken = self.conditions[id(item)](machine)
                if taken:
                    index = at[item.target]
                if item.condition is not None:
                    self.branches.append(taken)
            elif isinstance(item, Instruction):
                if item.text == "s_endpgm":
                    return
                self.meanings[id(item)](machine)
            else:
                assert isinstance(item, Label | Commit | Wait)
        raise AssertionError("the kernel does not end")


def _parts(given: tuple[Virtual | Part, ...]) -> tuple[Part, ...]:
    return tuple(what if isinstance(what, Part) else whole(what) for what in given)
