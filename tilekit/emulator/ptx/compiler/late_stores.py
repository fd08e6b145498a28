"""Stores of a block made together, where nothing looks at them one by one.

An epilogue stores a tile in pieces, an instruction each, with nothing but arithmetic in between. Put off until another
instruction could tell, such stores are one NumPy call. Programs whose accesses are checked make every store by itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

PASSES = frozenset(
    (
        *("abs", "add", "and", "bfe", "bfi", "cvt", "cvta", "fma", "lop3", "mad", "max", "min", "mov", "mul", "neg"),
        *("not", "or", "prmt", "selp", "setp", "shf", "shl", "shr", "sub", "xor"),
    )
)
"""Opcodes that compute registers from registers: stores may be made after them."""


@dataclass(frozen=True, slots=True)
class LateStore:
    """One store that was put off.

    Attributes
    ----------
    call
        Python text of the call that makes stores of its kind together, up to the arguments that differ.
    position
        Of the instruction.
    address
        Local variable of the lanes' addresses.
    values
        Returns, when it is time, the expressions of what is stored.
    reads
        Numbers of the registers that they read.
    """

    call: str
    position: int
    address: str
    values: Callable[[], Sequence[str]]
    reads: frozenset[int]


class LateStores:
    """The stores that a block has put off, in order."""

    def __init__(self) -> None:
        self._stores: list[LateStore] = []

    def __bool__(self) -> bool:
        return bool(self._stores)

    def add(self, store: LateStore) -> None:
        """Put a store off."""
        self._stores.append(store)

    def reads(self, number: int) -> bool:
        """Whether a store has yet to read a register."""
        return any(number in store.reads for store in self._stores)

    def make(self) -> Iterator[str]:
        """Lines that make them all: neighbours of one kind together."""
        stores, self._stores = self._stores, []
        for call, group in itertools.groupby(stores, lambda store: store.call):
            same = list(group)
            values = [text for store in same for text in store.values()]
            lists = ([str(s.position) for s in same], [s.address for s in same], values)
            yield ", ".join([call, *("(" + "".join(f"{text}, " for text in texts) + ")" for texts in lists)]) + ")"
