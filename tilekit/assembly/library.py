"""Fragments as Python calls: ``w.ptx.tma.load_2d(dst=…, map=…, x=…, y=…, full=…)``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilekit.assembly.errors import FragmentError, MissingFragmentError
from tilekit.assembly.fragment import Fragment, FragmentOperand, Immediate
from tilekit.assembly.fragment_files import fragments_of, read_fragments
from tilekit.assembly.instruction_sets import DIALECTS
from tilekit.assembly.numbers import Number, number
from tilekit.assembly.provenance import origin
from tilekit.assembly.types import PRED, accepts
from tilekit.assembly.values import RegisterTile, Value

if TYPE_CHECKING:
    from tilekit.assembly.writer import Writer


class FragmentGroup:
    """The fragments of one file, as methods that take their operands by name."""

    def __init__(self, writer: Writer, name: str, fragments: dict[str, Fragment]) -> None:
        self._writer = writer
        self._name = name
        self._fragments = fragments

    def __getattr__(self, name: str) -> Callable[..., Any]:
        fragment = self._fragments.get(name)
        if fragment is None:
            target = self._writer.target
            raise MissingFragmentError(
                f"there is no fragment {self._name}.{name} of {target.isa} for {target.name}, which {origin()} places; "
                f"{self._name} has {', '.join(sorted(self._fragments))}",
                code="TK-FRAG-003",
            )
        return partial(self._writer.place, fragment)


class FragmentLibrary:
    """Every fragment file of the target's instruction set as an attribute; of the neutral files alone ``w.isa``.

    Parameters
    ----------
    writer
        What fragments are placed in; its target says which of a name.
    groups
        The files; None for all.
    """

    def __init__(self, writer: Writer, groups: frozenset[str] | None = None) -> None:
        self._writer = writer
        self._known = fragments_of(writer.target)
        self._groups = self._known.keys() if groups is None else self._known.keys() & groups

    def __getattr__(self, name: str) -> FragmentGroup:
        if name not in self._groups:
            target, isa = self._writer.target, self._writer.target.isa
            elsewhere = f"; w.{isa} has it, for components that speak {isa}" if name in self._known else ""
            raise MissingFragmentError(
                f"there is no fragment file {name!r} of {isa} for {target.name}, in which {origin()} looks{elsewhere}; "
                f"there are {', '.join(sorted(self._groups))}",
                code="TK-FRAG-003",
            )
        return FragmentGroup(self._writer, name, self._known[name])


class FragmentFiles(FragmentLibrary):
    """``w.fragments``: the library's files as attributes, and any other file by its path."""

    def __call__(self, path: str | os.PathLike[str]) -> FragmentGroup:
        """Read a fragment file.

        Parameters
        ----------
        path
            The file. A relative one begins where the Python file is that names it, in a notebook in the working folder.

        Returns
        -------
        FragmentGroup
            Its fragments, as methods.

        Raises
        ------
        FragmentError
            ``TK-FRAG-001``, with file and line, for a file that cannot be read, or a header or text that cannot be.
        """
        if not isinstance(path, str | os.PathLike):
            raise FragmentError(f"w.fragments: given {path!r}; legal: the path of a fragment file", code="TK-FRAG-001")
        dialect = DIALECTS[self._writer.target.isa]
        file = Path(path)
        if not file.is_absolute():
            caller = Path(sys._getframe(1).f_code.co_filename)
            file = (caller.parent if caller.is_file() else Path.cwd()) / file
        return FragmentGroup(self._writer, file.stem, read_fragments(file.resolve(), dialect))


def bind_immediate(fragment: Fragment, immediate: Immediate, value: object) -> str:
    """Check a build-time operand and return its words.

    Raises
    ------
    FragmentError
        ``TK-FRAG-002`` with the rule and the nearest legal value.
    """
    text = immediate.spell(value)
    if text is None:
        raise fragment.error(
            f"immediate {immediate.name}={value!r} is not one of {immediate.rule}; nearest: {immediate.nearest(value)}"
        )
    return text


def bind_operand(fragment: Fragment, operand: FragmentOperand, value: object) -> Value | RegisterTile | Number:
    """Check what stands for a register operand: a register, a list of registers, or a constant.

    Raises
    ------
    FragmentError
        ``TK-FRAG-002`` for a wrong type, list length or a constant where a register must stand.
    TraceError
        ``TK-TRACE-005`` for a number that the operand's type cannot hold.
    """
    if operand.length is not None:
        return _bind_list(fragment, operand, value)
    if isinstance(value, Value):
        if accepts(operand.type, value.type):
            return value
    elif operand.name in fragment.guards:
        raise fragment.error(
            f"operand {operand.name} guards an instruction and must be a predicate register; given {value!r}. Write a "
            f"Python `if` for what is known at build time, or pass w.constant(PRED, {value!r})"
        )
    elif operand.direction == "in" and _takes_constant(operand, value):
        return number(value, operand.type)
    raise fragment.error(f"operand {operand.name} is {operand.wanted}; given {value!r}")


def _takes_constant(operand: FragmentOperand, value: object) -> bool:
    if isinstance(value, bool) or operand.type is PRED:
        return isinstance(value, bool) and operand.type is PRED
    is_number = operand.type.is_number or operand.type.name in ("b16", "b32")
    return is_number and operand.type.space is None and isinstance(value, (int, float))


def _bind_list(fragment: Fragment, operand: FragmentOperand, value: object) -> RegisterTile:
    if not isinstance(value, (RegisterTile, list, tuple)) or (operand.length and len(value) != operand.length):
        raise fragment.error(
            f"operand {operand.name} is {operand.wanted}; given {value!r}; legal: a list of registers, or a tile of "
            f"them, such as w.tile(registers.{operand.type.name.upper()}, {operand.length or 4}, {operand.name!r})"
        )
    wrong = [each for each in value if not isinstance(each, Value) or not accepts(operand.type, each.type)]
    if wrong:
        held = "tile" if isinstance(value, RegisterTile) else type(value).__name__
        hint = (
            "" if isinstance(wrong[0], Value) else f"; nearest: w.constant(registers.{operand.type.name.upper()}, ...)"
        )
        raise fragment.error(f"operand {operand.name} is {operand.wanted}; given a {held} holding {wrong[0]!r}{hint}")
    return value if isinstance(value, RegisterTile) else RegisterTile(value)
