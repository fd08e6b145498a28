"""Making instructions: where values live, copies between register files, and operands that an encoding takes."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tilekit.assembly.gcn.code import Code, Counter, File, Instruction, Item, Lanes, Part, Virtual
from tilekit.assembly.gcn.operands import Operand, Word, clobbers_scc, is_inline, is_scalar, is_vector, spelled
from tilekit.assembly.gcn.uniformity import Uniformity
from tilekit.assembly.numbers import Number
from tilekit.assembly.provenance import Origin
from tilekit.assembly.trace import Line, Source
from tilekit.assembly.types import PRED, RegisterType
from tilekit.assembly.values import Value

_COPIES = {
    ("vector", "vector"): "v_mov_b32",
    ("vector", "scalar"): "v_mov_b32",
    ("scalar", "scalar"): "s_mov_b32",
    ("scalar", "vector"): "v_readfirstlane_b32",
    ("vector", "accumulator"): "v_accvgpr_read_b32",
    ("accumulator", "vector"): "v_accvgpr_write_b32",
    ("accumulator", "accumulator"): "v_accvgpr_mov_b32",
}


def words_of(type_: RegisterType) -> int:
    """32-bit registers of a value; a predicate has a bit for each of 64 lanes."""
    return 2 if type_ is PRED or type_.bits == 64 else 1


def bits_of(number: Number) -> int:
    """A constant's bits."""
    if number.type.kind == "float":
        return int.from_bytes(struct.pack(">f", number.value), "big")
    if number.type is PRED:
        return -int(number.value) & 0xFFFFFFFFFFFFFFFF
    return int(number.value) & ((1 << 32 * words_of(number.type)) - 1)


class Builder:
    """Instructions in order, and the registers of values.

    Parameters
    ----------
    uniformity
        Of the whole kernel.

    Attributes
    ----------
    code
        What was made so far.
    parted
        Whether lanes may have parted where the next instruction stands.
    """

    def __init__(self, uniformity: Uniformity) -> None:
        self.uniformity = uniformity
        self.code = Code()
        self.parted = False
        self._labels = 0
        self._line: Line | None = None
        self._homes: dict[str, Virtual] = {}
        for register, _ in uniformity.tiles.values():
            if register.name not in self._homes:
                words = words_of(register.type) * (register.count or 1)
                file: File = "vector"
                if register.name in uniformity.scalar or register.type is PRED:
                    file = "scalar"
                elif register.name in uniformity.accumulators:
                    file = "accumulator"
                self._homes[register.name] = self.virtual(register.name.rstrip("_"), file, words)

    # -- registers ----------------------------------------------------------------------------------------------------

    @staticmethod
    def virtual(name: str, file: File, words: int = 1) -> Virtual:
        """A register to be placed: pairs begin at even ones, four scalars and more at multiples of four."""
        return Virtual(name, file, words, 1 if words == 1 else 4 if file == "scalar" and words > 2 else 2)

    def temporary(self, file: File, words: int = 1, name: str = "temp") -> Part:
        """A register for a moment."""
        return Part(self.virtual(name, file, words), 0, words)

    def home(self, value: Value) -> Part:
        """Where a value lives."""
        register, index = self.uniformity.tiles[self.uniformity.name(value)]
        words = words_of(register.type)
        return Part(self._homes[register.name], index * words, words)

    def word(self, part: Part, index: int) -> Part:
        """One word of some."""
        return Part(part.register, part.first + index, 1)

    def words(self, what: Source) -> list[Word]:
        """The words of an operand that VALU and SALU instructions can read, the lowest first."""
        number = self.number(what)
        if number is not None:
            bits = bits_of(number)
            return [bits >> 32 * i & 0xFFFFFFFF for i in range(words_of(number.type))]
        assert isinstance(what, Value)
        part = self.home(what)
        if part.register.file == "accumulator":
            copy = self.temporary("vector", part.words)
            self.copy(copy, part)
            part = copy
        return [self.word(part, i) for i in range(part.words)]

    def number(self, what: Source) -> Number | None:
        """The constant that an operand is."""
        if isinstance(what, Value):
            return self.uniformity.constants.get(what.text)
        return what

    def mask(self, what: Source) -> Operand:
        """A predicate: a bit for each lane."""
        number = self.number(what)
        if number is None:
            assert isinstance(what, Value)
            return self.home(what)
        return 0xFFFFFFFF if number.value else 0  # -1 and 0, as 64-bit constants

    # -- instructions -------------------------------------------------------------------------------------------------

    def begin(self, line: Line) -> None:
        """What follows comes from a line of the trace."""
        self._line = line

    @property
    def origin(self) -> Origin | None:
        """Where what is made comes from."""
        return None if self._line is None else self._line.origin

    def item(self, item: Item) -> None:
        """Append an item."""
        self.code.items.append(item)

    def label(self, name: str) -> str:
        """A label that is used nowhere else; those of the trace have no dot in their names."""
        self._labels += 1
        return f".L{name}.{self._labels}"

    def put(
        self,
        mnemonic: str,
        *operands: Operand,
        targets: int = 1,
        counter: Counter | None = None,
        lanes: Lanes = "any",
    ) -> None:
        """Append an instruction that writes its first operands, so many, and reads the others."""
        shown, places = [], 0
        for operand in operands:
            if isinstance(operand, Part):
                shown.append(f"{{{places}}}")
                places += 1
            else:
                shown.append(spelled(operand) if isinstance(operand, int) else operand)
        self.append(
            f"{mnemonic} {', '.join(shown)}".rstrip(),
            tuple(operand for operand in operands if isinstance(operand, Part)),
            reads=tuple(o for o in operands[targets:] if isinstance(o, Part)),
            writes=tuple(o for o in operands[:targets] if isinstance(o, Part)),
            clobbers=frozenset(o.removesuffix("_lo") for o in operands[:targets] if isinstance(o, str)),
            counter=counter,
            lanes=lanes,
        )

    def append(
        self,
        text: str,
        operands: tuple[Part, ...],
        *,
        reads: tuple[Part, ...],
        writes: tuple[Part, ...],
        clobbers: frozenset[str] = frozenset(),
        partial: bool = False,
        lanes: Lanes = "any",
        counter: Counter | None = None,
        to_lds: bool = False,
    ) -> None:
        """Append an instruction, with where it comes from; where lanes may have parted, it is `partial` in any case."""
        assert self._line is not None
        line = self._line
        if clobbers_scc(text):
            clobbers |= {"scc"}
        if "saveexec" in text:
            clobbers |= {"exec"}
        self.code.items.append(
            Instruction(
                text,
                operands,
                reads,
                writes,
                clobbers,
                partial or self.parted,
                lanes,
                counter,
                to_lds,
                depth=line.depth,
                role=line.role,
                origin=line.origin,
            )
        )

    def scalar(self, mnemonic: str, *operands: Operand, targets: int = 1) -> None:
        """A SALU instruction, which holds one constant of 32 bits."""
        literals = {o for o in operands if isinstance(o, int) and not is_inline(o)}
        legal = list(operands)
        for literal in sorted(literals)[1:]:
            copy = self.temporary("scalar")
            self.put("s_mov_b32", copy, literal)
            legal = [copy if operand == literal else operand for operand in legal]
        self.put(mnemonic, *legal, targets=targets)

    def vector2(self, mnemonic: str, target: Part, a: Word, b: Word, *, reverse: str = "") -> None:
        """A VALU instruction of two sources, the second a VGPR; `reverse` is the same with the sources changed."""
        if not is_vector(b) and reverse and is_vector(a):
            mnemonic, a, b = reverse, b, a
        self.put(mnemonic, target, a, b if is_vector(b) else self.in_vector(b))

    def vector(self, mnemonic: str, *operands: Operand, targets: int = 1) -> None:
        """A VALU instruction of the long encoding: no constant of 32 bits, and scalars from one register only."""
        scalars: list[Operand] = [o for o in operands[targets:] if is_scalar(o) or isinstance(o, str)]
        legal: list[Operand] = list(operands[:targets])
        for operand in operands[targets:]:
            if isinstance(operand, int) and not is_inline(operand):
                if scalars:
                    operand = self.in_vector(operand)
                else:
                    operand, constant = self.temporary("scalar"), operand
                    self.put("s_mov_b32", operand, constant)
                    scalars.append(operand)
            elif is_scalar(operand) and operand != scalars[-1]:
                assert isinstance(operand, Part)
                copy = self.temporary("vector", operand.words)
                self.copy(copy, operand)
                operand = copy
            legal.append(operand)
        self.put(mnemonic, *legal, targets=targets)

    def in_vector(self, word: Word) -> Part:
        """A word in a VGPR, copied where it is not."""
        if isinstance(word, Part) and word.register.file == "vector":
            return word
        copy = self.temporary("vector")
        self.copy(copy, word)
        return copy

    def pair(self, words: Sequence[Word], file: File = "vector") -> Part:
        """Two words side by side in registers, copied where they are not."""
        low, high = words
        if isinstance(low, Part) and low.register.file == file and _follow(low, high):
            return Part(low.register, low.first, 2)
        copy = self.temporary(file, 2)
        self.copy_words([self.word(copy, 0), self.word(copy, 1)], words)
        return copy

    # -- copies -------------------------------------------------------------------------------------------------------

    def copy(self, to: Part, what: Part | int) -> None:
        """Copy registers, or a constant into one, from any file to any other."""
        if isinstance(what, int):
            self.copy_words([to], [what])
        else:
            self.copy_words(*([self.word(part, i) for i in range(part.words)] for part in (to, what)))

    def copy_words(self, to: Sequence[Part], what: Sequence[Word]) -> None:
        """Copy word by word; pairs of scalars at once."""
        rest = list(zip(to, what, strict=True))
        while rest:
            (target, source), *rest = rest
            if isinstance(source, int):
                self._constant(target, source)
                continue
            kinds = target.register.file, source.register.file
            if kinds == ("scalar", "scalar") and rest and _follow(target, rest[0][0]) and _follow(source, rest[0][1]):
                rest.pop(0)
                self.put("s_mov_b64", Part(target.register, target.first, 2), Part(source.register, source.first, 2))
            elif kinds in _COPIES:
                self.put(_COPIES[kinds], target, source)
            elif kinds == ("accumulator", "scalar"):
                self.put("v_accvgpr_write_b32", target, self.in_vector(source))
            else:  # a scalar from an accumulator
                between = self.temporary("vector")
                self.copy(between, source)
                self.put("v_readfirstlane_b32", target, between)

    def _constant(self, target: Part, value: int) -> None:
        file = target.register.file
        if file == "accumulator":
            self.put("v_accvgpr_write_b32", target, value if is_inline(value) else self.in_vector(value))
        else:
            self.put("s_mov_b32" if file == "scalar" else "v_mov_b32", target, value)

    @contextmanager
    def result(self, value: Value, file: File) -> Iterator[list[Part]]:
        """Words of a file to write a value's to; what lives in another file is copied there at the end."""
        home = self.home(value)
        target = home if home.register.file == file else self.temporary(file, home.words, value.text)
        yield [self.word(target, i) for i in range(home.words)]
        if target is not home:
            self.copy(home, target)

    @contextmanager
    def predicate(self, value: Value) -> Iterator[Part]:
        """A pair of scalars to write a predicate to; where lanes have parted, the others' bits are put back."""
        home = self.home(value)
        if not (self.parted and self.uniformity.keeps(value.text)):
            yield home
            return
        target = self.temporary("scalar", 2, value.text)
        yield target
        self.put("s_and_b64", target, target, "exec")
        self.put("s_andn2_b64", home, home, "exec")
        self.put("s_or_b64", home, home, target)


def _follow(first: Word, second: Word) -> bool:
    """Whether two words are an aligned pair of one register."""
    return (
        isinstance(first, Part)
        and isinstance(second, Part)
        and first.register is second.register
        and second.first == first.first + 1
        and first.first % 2 == 0
        and first.register.words > 1
    )
