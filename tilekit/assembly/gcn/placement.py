"""Fragments in their place: operands brought into the register files that they ask for, lines with their effects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilekit.assembly.errors import FragmentError
from tilekit.assembly.gcn import notation
from tilekit.assembly.gcn.abi import KernelAbi
from tilekit.assembly.gcn.builder import Builder, words_of
from tilekit.assembly.gcn.code import Branch, Commit, File, Label, Part, Wait
from tilekit.assembly.gcn.lines import Place, effects_of, waited_for
from tilekit.assembly.numbers import Number
from tilekit.assembly.provenance import Origin
from tilekit.assembly.trace import Bound, Line, Placement
from tilekit.assembly.types import PRED
from tilekit.assembly.values import Value

if TYPE_CHECKING:
    from tilekit.assembly.fragment import Fragment, FragmentOperand


_GIVES_BACK = ("s_mov_b64 exec,", "s_or_b64 exec,")
"""How the last line of a fragment begins that writes EXEC."""


def file_of(operand: FragmentOperand) -> File:
    """The register file that an operand is in: what its line says, else scalars for predicates and VGPRs for others."""
    if operand.file:
        return operand.file  # type: ignore[return-value]  # the header's reader knows no others
    return "scalar" if operand.type is PRED else "vector"


class Placer:
    """Places fragments.

    Parameters
    ----------
    build
        Where instructions go.
    abi
        What the hardware fills at the start, and where parameters are.
    """

    def __init__(self, build: Builder, abi: KernelAbi) -> None:
        self._build = build
        self._abi = abi

    def place(self, line: Line, placement: Placement) -> None:
        """Append a fragment's instructions, behind copies of what is elsewhere than it asks for.

        Raises
        ------
        FragmentError
            ``TK-FRAG-006`` for a value that may differ from lane to lane where a scalar is asked for.
        """
        fragment, bound = placement.fragment, placement.bound
        texts = {i.name: str(bound[i.name]) for i in fragment.immediates}
        parts: dict[str, Part] = {}
        for name in fragment.given:
            given = self._abi.given(name)
            if isinstance(given, Part):
                parts[name] = given
            else:
                texts[name] = given
        after: list[tuple[FragmentOperand, Part]] = []
        for operand in fragment.operands:
            part = self._input(fragment, operand, bound[operand.name], line.origin)
            if part is None:
                part = self._build.temporary(
                    self._file(operand, ()), self._size(operand, bound[operand.name]), operand.name
                )
                if operand.direction != "out":
                    self._fill(part, bound[operand.name])
                if operand.direction != "in":
                    after.append((operand, part))
            parts[operand.name] = part
        for operand in fragment.temporaries:
            size = words_of(operand.type) * (operand.length or 1)
            parts[operand.name] = self._build.temporary(file_of(operand), size, f"{fragment.name}.{operand.name}")
        decided = {
            operand.name: bool(number.value)
            for operand in fragment.inputs.values()
            if operand.type is PRED and (number := self._number(bound[operand.name])) is not None
        }
        self._lines(fragment, texts, parts, decided, line.origin)
        for operand, part in after:
            self._return(bound[operand.name], part)

    def _number(self, what: Bound) -> Number | None:
        return self._build.number(what) if isinstance(what, (Value, Number)) else None

    # -- operands -----------------------------------------------------------------------------------------------------

    def _file(self, operand: FragmentOperand, homes: tuple[File, ...]) -> File:
        """Where an operand is to be: one that may be in accumulator registers is where its value lives."""
        file = file_of(operand)
        if file == "accumulator" and "accumulator" not in homes:
            return "vector"
        return file

    @staticmethod
    def _size(operand: FragmentOperand, what: Bound) -> int:
        count = 1 if isinstance(what, (Value, Number)) else len(what)
        return words_of(operand.type) * count

    def _input(self, fragment: Fragment, operand: FragmentOperand, what: Bound, origin: Origin) -> Part | None:
        """The registers of an operand where they can be used as they are; else None."""
        build = self._build
        if operand.file == "scalar" and operand.direction != "out" and not build.uniformity.is_uniform(what):
            raise fragment.error(
                f"operand {operand.name} is one for the whole wave (a scalar), and {what!r} may differ from lane to "
                f"lane; {origin} places it. Pass a value that all lanes have alike, such as w.warp() or "
                "w.broadcast(value, lane=0)",
                "TK-FRAG-006",
            )
        if isinstance(what, Number) or (isinstance(what, Value) and build.number(what) is not None):
            return None
        assert not isinstance(what, (Number, str))
        values = [what] if isinstance(what, Value) else list(what)
        homes = [build.home(value) for value in values]
        first = homes[0]
        if (
            operand.type is PRED
            and operand.direction != "in"
            and build.parted
            and build.uniformity.keeps(values[0].text)
        ):
            return None
        follows = all(
            part.register is first.register and part.first == first.first + i * first.words
            for i, part in enumerate(homes)
        )
        whole = Part(first.register, first.first, sum(part.words for part in homes))
        alignment = build.virtual("", first.register.file, whole.words).alignment
        file = self._file(operand, (first.register.file,))
        aligned = first.first % alignment == 0 and first.register.alignment % alignment == 0
        return whole if follows and aligned and first.register.file == file else None

    def _fill(self, part: Part, what: Bound) -> None:
        build = self._build
        if isinstance(what, (Value, Number)):
            if part.words == 2 and build.number(what) is None and isinstance(what, Value) and what.type is PRED:
                build.put("s_mov_b64", part, build.mask(what))
                return
            words = build.words(what)
        else:
            assert not isinstance(what, str)
            words = [word for value in what for word in build.words(value)]
        build.copy_words([build.word(part, i) for i in range(part.words)], words)

    def _return(self, what: Bound, part: Part) -> None:
        """Copy what a fragment wrote to where its value lives."""
        build = self._build
        assert not isinstance(what, (Number, str))
        done = 0
        for value in [what] if isinstance(what, Value) else what:
            home = build.home(value)
            copied = Part(part.register, part.first + done, home.words)
            done += home.words
            if value.type is PRED:
                with build.predicate(value) as target:
                    build.put("s_mov_b64", target, copied)
            else:
                build.copy(home, copied)

    # -- lines --------------------------------------------------------------------------------------------------------

    def _lines(
        self,
        fragment: Fragment,
        texts: dict[str, str],
        parts: dict[str, Part],
        decided: dict[str, bool],
        origin: Origin,
    ) -> None:
        registers = tuple((name, part.register.file, part.words) for name, part in parts.items())
        labels = {match[1]: self._build.label(f"{fragment.name}_{match[1]}")
                  for text in fragment.text if (match := notation.LABEL.match(text))}  # fmt: skip
        filled = [
            notation.HOLE.sub(lambda hole: texts.get(hole[1], hole[0]), text) if texts else text
            for text in fragment.text
        ]
        kept = {operand.name for operand in fragment.operands if operand.direction == "in"} | set(fragment.given)
        lines = [
            (text, f"fragment {fragment.name} ({fragment.file.name}:{number})")
            for text, number in zip(notation.without_guard(filled, decided), fragment.numbers, strict=True)
            if text
        ]
        chip = self._abi.chip
        read = [None if _is_control(text) else effects_of(text, registers, where, chip) for text, where in lines]
        narrowing = [i for i, found in enumerate(read) if found is not None and found.narrows]
        last = narrowing[-1] if narrowing else -1  # gives back what those before it took
        if narrowing and not lines[last][0].strip().startswith(_GIVES_BACK):
            text, where = lines[last]
            raise FragmentError(
                f"{where}: `{text.strip()}` changes EXEC, and no line behind it gives the lanes back: "
                "s_mov_b64 exec, ${lanes}",
                code="TK-FRAG-001",
            )
        narrowed = range(narrowing[0] + 1, last) if narrowing else range(0)
        for number, ((text, where), found) in enumerate(zip(lines, read, strict=True)):
            if found is None:
                self._control(text, labels, where, origin)
                continue
            for place in found.writes:
                if place.name in kept:
                    raise FragmentError(
                        f"{where}: `{text.strip()}` writes {place.name!r}, which is the kernel's to keep; nearest: "
                        "inout, or a register of the fragment's own (//! temp)",
                        code="TK-FRAG-001",
                    )
            self._build.append(
                found.text,
                tuple(_part(parts, place) for place in found.places),
                reads=tuple(_part(parts, place) for place in found.reads),
                writes=tuple(_part(parts, place) for place in found.writes),
                clobbers=found.clobbers,
                partial=number in narrowed,
                lanes="more" if number == last else "fewer",
                counter=found.counter,
                to_lds=found.to_lds,
            )

    def _control(self, text: str, labels: dict[str, str], where: str, origin: Origin) -> None:
        build = self._build
        if label := notation.LABEL.match(text):
            build.item(Label(labels[label[1]]))
        elif branch := notation.BRANCH.match(text):
            if branch[2] not in labels:
                raise FragmentError(f"{where}: there is no label {branch[2]!r} to go to", code="TK-FRAG-001")
            build.item(Branch(labels[branch[2]], branch[1], origin))
        elif notation.COMMIT.match(text):
            build.item(Commit())
        elif pending := notation.WAIT_GROUP.match(text):
            build.item(Wait(int(pending[1]), origin=origin))
        elif waits := notation.WAIT.match(text):
            for counter in waited_for(waits[1], where):
                build.item(Wait(None, counter, origin))


def _is_control(text: str) -> bool:
    """Whether a line is no instruction to allocate registers for: a label, a branch, a wait, the end of a group."""
    return any(pattern.match(text) for pattern in notation.CONTROL)


def _part(parts: dict[str, Part], place: Place) -> Part:
    part = parts[place.name]
    return Part(part.register, part.first + place.first, place.words)
