"""A module in memory: its data, and the addresses of its code."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilekit.emulator.core.errors import LaunchError
from tilekit.emulator.core.memory.memory import Allocation, GlobalMemory
from tilekit.emulator.gcn.language.syntax import ModuleText, Symbol

__all__ = ["Image"]

STEP = 8
"""Bytes from one instruction's address to the next: only their order, and that they differ, can be seen."""
_WITH_ADDRESSES = ("s_getpc_b64", "s_swappc_b64", "s_setpc_b64", "s_call_b64")


class Image:
    """What of a module has addresses.

    Parameters
    ----------
    memory
        Where it is placed.
    text
        The module.
    """

    def __init__(self, memory: GlobalMemory, text: ModuleText) -> None:
        self._labels = text.labels
        self._addresses: dict[str, int] = {}
        self._entries: dict[str, int] = {}
        self._code: Allocation | None = None
        code = text.instructions
        if any(i.name in _WITH_ADDRESSES for i in code) or any(section.pointers for section in text.sections):
            self._code = memory.allocate(STEP * (len(code) + 1), "the module's code")
            self._code.writable = False
        sections = []
        for section in text.sections:
            placed = memory.allocate(max(len(section.image), 1), section.name) if section.image else None
            if placed is not None:
                placed.writable = not section.name.startswith(".rodata")
                placed.data[: len(section.image)] = np.frombuffer(bytes(section.image), np.uint8)
            sections.append(placed)
        for name, (number, offset) in text.places.items():
            found = sections[number]
            if found is not None:
                self._addresses[name] = found.start + offset
        for section, placed in zip(text.sections, sections, strict=True):
            for pointer in section.pointers:
                assert placed is not None
                self._put(placed, pointer.offset, self.address(pointer.symbol) + pointer.addend)
        wanted = {o.name for i in code for o in i.operands if isinstance(o, Symbol) and o.part.startswith("gotpcrel")}
        if wanted:
            table = memory.allocate(8 * len(wanted), "the module's table of addresses")
            for place, name in enumerate(sorted(wanted)):
                self._entries[name] = table.start + 8 * place
                self._put(table, 8 * place, self.address(name))

    @staticmethod
    def _put(allocation: Allocation, offset: int, value: int) -> None:
        allocation.data[offset : offset + 8] = np.frombuffer((value & (1 << 64) - 1).to_bytes(8, "little"), np.uint8)

    def address(self, name: str) -> int:
        """The address of a label.

        Raises
        ------
        LaunchError
            If the text has no such label with a place in memory.
        """
        found = self._addresses.get(name)
        if found is not None:
            return found
        index = self._labels.get(name, -1)
        if index < 0:
            raise LaunchError(f"the text takes the address of '{name}', and defines it in no section with a place")
        return self.address_of_code(index)

    def entry(self, name: str) -> int:
        """The address of the word that holds a label's address."""
        return self._entries[name]

    def address_of_code(self, index: int) -> int:
        """The address of an instruction."""
        assert self._code is not None
        return self._code.start + STEP * index

    def index_at(self, address: Any) -> int:
        """The instruction at an address; -1 where none is."""
        if self._code is None:
            return -1
        index, within = divmod(int(address) - self._code.start, STEP)
        return index if within == 0 and 0 <= index < self._code.size // STEP else -1
