"""Fragment files: a header and assembly text, read and checked.

A fragment file holds fragments one after another. Lines that start with ``//!`` are the header, the rest is assembly in
which ``${name}`` stands for an operand::

    //! fragment  wait_parity
    //! about     Spin until the phase with this parity has completed.
    //! in        bar      smem
    //! in        parity   b32
    //! kind      wait
    //! target    sm_90    ptx 8.0
    //! see       PTX ISA, mbarrier.try_wait

Header lines
------------
``in``, ``out``, ``inout``
    An operand: its name and its register type (`tilekit.assembly.types`), with ``[*]`` for a list of any length or
    ``[n]`` for one of length n. An ``in`` operand of an integer or f32 type also takes a Python number, a ``pred`` a
    bool unless it guards an instruction (``@${name}``). A call returns the ``out`` operands.
``imm``
    A build-time operand that becomes part of the text: ``imm n 8..256 step 8``, ``imm depth 0..7``, or
    ``imm type bf16|f16``; ``imm type e4m3=fp8|e5m2=bf8`` where the text has other words than the call.
``kind``
    What the fragment does (`KINDS`); a role may only use the kinds it declared.
``target``
    The lowest architecture that has it, and for PTX the version: those targets run it that name this architecture among
    theirs. ``sm_90`` means 9.0 and all later ones, ``sm_90a`` that one only.
``needs``
    A capability (`tilekit.targets.CAPABILITIES`) that the target must have, too.
``aligned``
    All lanes of the warp must execute it together; emitting it where control flow may have diverged is an error.
``uniform``
    Outputs are the same in every lane whenever the inputs are.

An instruction set with several register files (GCN) has one more word behind an operand: ``in base gmem scalar``.
It has two more lines: ``temp``, a register of the fragment's own, written as an operand is; and ``given``, what the
hardware fills at the start. `FragmentFormat` says which there are.

A header line indented past its key continues the one before it.

A name that the text declares (a register, a label) is the fragment's own: it stands inside of braces, and is changed
where the kernel has another of that name.
"""

from __future__ import annotations

import difflib
import keyword
import re
from functools import cache
from pathlib import Path

from tilekit.assembly.dialect import Dialect, TextFault
from tilekit.assembly.errors import FragmentError
from tilekit.assembly.fragment import KINDS, Fragment, FragmentOperand, Immediate, fragment_root
from tilekit.assembly.instruction_sets import DIALECTS
from tilekit.assembly.types import REGISTER_TYPES
from tilekit.targets import CAPABILITIES, Target

_OPERAND = re.compile(r"(\w+)(?:\[(\*|\d+)\])?$")
_SPAN = re.compile(r"(\d+)\.\.(\d+)(?: step (\d+))?$")


@cache
def every_fragment(dialect: Dialect) -> tuple[tuple[str, Fragment], ...]:
    """Every fragment of an instruction set with its group, which is its file's name.

    A fragment may stand in several architectures' folders under one name, with the same operands: a target takes the
    latest that it has.

    Raises
    ------
    FragmentError
        ``TK-FRAG-001`` for one name twice in a folder, or with other operands in another folder.
    """
    root = fragment_root() / dialect.isa
    files = sorted(root.glob(f"*/*{dialect.fragments.suffix}"))
    if not files:
        raise FragmentError(f"no fragment files under {root}: the installation is incomplete", code="TK-FRAG-001")
    found: dict[tuple[str, str], list[Fragment]] = {}
    for file in files:
        for fragment in parse_fragments(file, dialect):
            others = found.setdefault((file.stem, fragment.name), [])
            for other in others:
                if other.file == file:
                    raise fragment.error("the file defines the same name twice", "TK-FRAG-001")
                if (other.operands, other.immediates) != (fragment.operands, fragment.immediates):
                    raise fragment.error(
                        f"{other.file.parent.name}/{file.name} defines the same name with other operands; targets take "
                        "the latest of a name, so all of them are called alike",
                        "TK-FRAG-001",
                    )
            others.append(fragment)
    return tuple((group, fragment) for (group, _), fragments in found.items() for fragment in fragments)


@cache
def local_names(dialect: Dialect) -> frozenset[str]:
    """Names that fragments declare for themselves."""
    return frozenset(name for _, fragment in every_fragment(dialect) for name in fragment.locals)


@cache
def fragments_of(target: Target) -> dict[str, dict[str, Fragment]]:
    """What each name stands for on a target, as ``{"mbarrier": {"wait_parity": Fragment, ...}, ...}``.

    The latest that the target has; where it has none the earliest, whose call says what it needs.
    """
    library: dict[str, dict[str, Fragment]] = {}
    for group, fragment in every_fragment(DIALECTS[target.isa]):
        names = library.setdefault(group, {})
        before = names.get(fragment.name)
        if before is None or _preferred(fragment, before, target):
            names[fragment.name] = fragment
    return library


def read_fragments(path: Path, dialect: Dialect) -> dict[str, Fragment]:
    """Read the fragments of a file from elsewhere, by name; every text is parsed.

    Raises
    ------
    FragmentError
        ``TK-FRAG-001`` with file and line, where there is no such file, for a name twice, and for whatever is wrong
        with a header or a text.
    """
    try:
        fragments = parse_fragments(path, dialect)
    except (OSError, UnicodeDecodeError) as error:
        folder = path.parent
        there = sorted(file.name for file in folder.glob(f"*{dialect.fragments.suffix}")) if folder.is_dir() else []
        nearest = difflib.get_close_matches(path.name, there, 1, 0.0)
        hint = f"; nearest: {folder / nearest[0]}" if nearest and nearest[0] != path.name else ""
        raise FragmentError(f"fragments of {path}: {error}{hint}", code="TK-FRAG-001") from error
    found: dict[str, Fragment] = {}
    for fragment in fragments:
        if fragment.name in found:
            raise fragment.error(f"line {found[fragment.name].line} defines the same name", "TK-FRAG-001")
        _check_text(fragment, dialect)
        found[fragment.name] = fragment
    if not found:
        raise FragmentError(
            f"{path} has no fragments; each begins with a line `//! fragment  its_name`", code="TK-FRAG-001"
        )
    return found


def _check_text(fragment: Fragment, dialect: Dialect) -> None:
    if dialect.fragments.check is None:
        return
    operands = {operand.name: (operand.type, operand.length) for operand in fragment.operands}
    try:
        dialect.fragments.check(
            fragment.text,
            operands,
            {immediate.name: immediate.spell(immediate.values[0]) or "" for immediate in fragment.immediates},
            fragment.version,
            kept=[operand.name for operand in fragment.operands if operand.direction == "in"],
            kind=fragment.kind,
        )
    except TextFault as fault:
        raise _text_error(fragment.file, fragment.name, fragment.numbers, fault) from fault


def _text_error(file: Path, name: str, numbers: tuple[int, ...], fault: TextFault) -> FragmentError:
    number = numbers[min(fault.line, len(numbers)) - 1]
    return FragmentError(f"{file.name}:{number}: fragment {name}: {fault.message}", code="TK-FRAG-001")


def _preferred(one: Fragment, other: Fragment, target: Target) -> bool:
    """Whether a target takes `one` rather than `other`."""
    if one.runs_on(target) != other.runs_on(target):
        return one.runs_on(target)
    later = _generation(one.target) > _generation(other.target)
    return later if one.runs_on(target) else not later


def parse_fragments(file: Path, dialect: Dialect) -> list[Fragment]:
    """Read all fragments of one file of a dialect.

    Raises
    ------
    FragmentError
        With file and line, when a header line, type, kind or hole is not understood.
    """
    fragments: list[Fragment] = []
    header: list[tuple[int, str, str]] = []
    body: list[tuple[int, str]] = []

    def finish() -> None:
        if header:
            fragments.append(_build(file, dialect, header, body))

    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        if line.startswith("//!"):
            if line[3:13].isspace() and header:
                first, key, value = header[-1]
                header[-1] = (first, key, f"{value} {line[3:].strip()}")
                continue
            key, _, value = line[3:].strip().partition(" ")
            if key == "fragment":
                finish()
                header, body = [], []
            elif not header:
                raise FragmentError(f"{file.name}:{number}: header line before any `//! fragment`", code="TK-FRAG-001")
            header.append((number, key, value.strip()))
        elif line.strip() and not line.startswith("//"):
            if not header:
                raise FragmentError(f"{file.name}:{number}: text before any `//! fragment`", code="TK-FRAG-001")
            body.append((number, line.rstrip()))
    finish()
    return fragments


def _build(file: Path, dialect: Dialect, header: list[tuple[int, str, str]], lines: list[tuple[int, str]]) -> Fragment:
    start, _, name = header[0]
    body = [line for _, line in lines]
    if not lines:
        raise FragmentError(
            f"{file.name}:{start}: fragment {name}: there is no text under the header", code="TK-FRAG-001"
        )
    callable_names: list[tuple[int, str]] = [(start, name)]
    operands: list[FragmentOperand] = []
    temporaries: list[FragmentOperand] = []
    given: list[str] = []
    immediates: list[Immediate] = []
    facts = {"about": "", "see": "", "kind": "", "target": ""}
    flags = {"aligned": False, "uniform": False}
    needs: set[str] = set()
    for number, key, value in header[1:]:
        where = f"{file.name}:{number}: fragment {name}"
        if key in ("in", "out", "inout", "imm", "temp"):
            callable_names.append((number, value.partition(" ")[0]))
        if key in ("in", "out", "inout"):
            operands.append(_operand(where, key, value, dialect))
        elif key == "temp" and dialect.fragments.temporaries:
            temporaries.append(_operand(where, key, value, dialect))
        elif key == "given" and dialect.fragments.given:
            if value not in dialect.fragments.given:
                raise FragmentError(
                    f"{where}: {value!r} is not given; there is {', '.join(dialect.fragments.given)}",
                    code="TK-FRAG-001",
                )
            given.append(value)
        elif key == "imm":
            immediate_name, _, rule = value.partition(" ")
            immediate = Immediate.of(immediate_name, rule.strip())
            if immediate is None:
                raise FragmentError(
                    f"{where}: immediate rule {rule.strip()!r} must read like `8..256 step 8` or `bf16|f16`",
                    code="TK-FRAG-001",
                )
            immediates.append(immediate)
        elif key in flags:
            flags[key] = True
        elif key in facts:
            facts[key] = value
        elif key == "needs":
            if value not in CAPABILITIES:
                nearest = difflib.get_close_matches(value, CAPABILITIES, 1, 0.0)[0]
                raise FragmentError(
                    f"{where}: {value!r} is no capability of a target; nearest: {nearest}", code="TK-FRAG-001"
                )
            needs.add(value)
        else:
            raise FragmentError(f"{where}: unknown header line {key!r}", code="TK-FRAG-001")
    _check_names(file, name, callable_names)
    if facts["kind"] not in KINDS:
        raise FragmentError(
            f"{file.name}:{start}: fragment {name}: kind {facts['kind']!r} is none of {', '.join(KINDS)}",
            code="TK-FRAG-001",
        )
    target = dialect.fragments.target.fullmatch(" ".join(facts["target"].split()))
    if target is None:
        raise FragmentError(
            f"{file.name}:{start}: fragment {name}: `target` must read like `{dialect.fragments.example}`",
            code="TK-FRAG-001",
        )
    version = target.groupdict()
    declared = {o.name for o in (*operands, *temporaries)} | {i.name for i in immediates} | set(given)
    used = {hole.group(1) for line in body for hole in dialect.fragments.hole.finditer(line)}
    if declared != used:
        raise FragmentError(
            f"{file.name}:{start}: fragment {name}: operands declared and never used: "
            f"{sorted(declared - used) or 'none'}; used and never declared: {sorted(used - declared) or 'none'}",
            code="TK-FRAG-001",
        )
    numbers = tuple(number for number, _ in lines)
    try:
        declared_names = dialect.fragments.scopes.local_names(body) if dialect.fragments.scopes else frozenset()
    except TextFault as fault:
        raise _text_error(file, name, numbers, fault) from fault
    for immediate in immediates:
        if hidden := declared_names & set(immediate.texts):
            raise FragmentError(
                f"{file.name}:{start}: fragment {name}: immediate {immediate.name} may be {min(hidden)!r}, "
                "which the text declares; a name that it declares is its own and may change",
                code="TK-FRAG-001",
            )
    return Fragment(
        name=name,
        file=file,
        line=start,
        about=facts["about"],
        see=facts["see"],
        kind=facts["kind"],
        target=target["architecture"],
        version=(int(version.get("major", 0)), int(version.get("minor", 0))),
        needs=frozenset(needs),
        aligned=flags["aligned"],
        uniform=flags["uniform"],
        operands=tuple(operands),
        immediates=tuple(immediates),
        text=tuple(body),
        guards=frozenset(name for line in body for name in dialect.fragments.guard.findall(line)),
        locals=declared_names,
        numbers=numbers,
        temporaries=tuple(temporaries),
        given=tuple(given),
        hole=dialect.fragments.hole,
    )


def _operand(where: str, direction: str, value: str, dialect: Dialect) -> FragmentOperand:
    """Read what an operand's line says behind its direction: name, type and, where there are several, register file."""
    name, _, rest = value.partition(" ")
    type_text, _, file = rest.strip().partition(" ") if dialect.fragments.files else (rest.strip(), "", "")
    match = _OPERAND.match(type_text)
    if match is None or match.group(1) not in REGISTER_TYPES:
        raise FragmentError(
            f"{where}: {type_text!r} is no register type; known: {', '.join(REGISTER_TYPES)}", code="TK-FRAG-001"
        )
    file = file.strip()
    if file and file not in dialect.fragments.files:
        nearest = difflib.get_close_matches(file, dialect.fragments.files, 1, 0.0)[0]
        raise FragmentError(f"{where}: {file!r} is no register file; nearest: {nearest}", code="TK-FRAG-001")
    length = None if match.group(2) is None else 0 if match.group(2) == "*" else int(match.group(2))
    if length == 0 and direction in ("out", "temp"):
        raise FragmentError(
            f"{where}: {'output' if direction == 'out' else 'temporary'} {name} has no fixed length; declare it "
            f"`inout`, so that a call passes the registers",
            code="TK-FRAG-001",
        )
    return FragmentOperand(name, direction, REGISTER_TYPES[match.group(1)], length, file)


def _check_names(file: Path, fragment: str, names: list[tuple[int, str]]) -> None:
    """Check that a Python call can name the fragment and each of its operands."""
    seen: set[str] = set()
    for number, name in names:
        where = f"{file.name}:{number}: fragment {fragment}"
        if not name.isidentifier() or keyword.iskeyword(name):
            nearest = re.sub(r"\W", "", name)
            nearest = f"{nearest}_" if nearest.isidentifier() else f"x{nearest}"
            raise FragmentError(
                f"{where}: {name!r} cannot be written in a Python call; nearest: {nearest}", code="TK-FRAG-001"
            )
        if number != names[0][0] and name in seen:
            raise FragmentError(f"{where}: {name!r} is declared twice", code="TK-FRAG-001")
        if number != names[0][0]:
            seen.add(name)


def _generation(architecture: str) -> int:
    return int(re.sub(r"\D", "", architecture))
