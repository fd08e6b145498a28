"""What a parsed PTX module is made of: variables, kernels, instructions and their operands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilekit.emulator.ptx.language.lexer import Token

TYPE_BYTES = {
    **{kind + "8": 1 for kind in "bsu"},
    **{kind + "16": 2 for kind in "bsuf"},
    **{kind + "32": 4 for kind in "bsuf"},
    **{kind + "64": 8 for kind in "bsuf"},
    "b128": 16,
    "bf16": 2,
    "f16x2": 4,
    "bf16x2": 4,
    "pred": 1,
}
"""Bytes of each fundamental PTX type (PTX ISA 5.2)."""


@dataclass(slots=True, eq=False)
class Register:
    """A declared register. ``number`` is unique within its kernel."""

    name: str
    type: str
    number: int

    @property
    def bits(self) -> int:
        """Width in bits; 1 for a predicate."""
        return 1 if self.type == "pred" else TYPE_BYTES[self.type] * 8


@dataclass(slots=True, frozen=True)
class Pointer:
    """An initial value that is an address, ``symbol + addend`` shifted right by `shift` bits, in `size` bytes."""

    offset: int
    symbol: str
    addend: int
    shift: int
    size: int


@dataclass(slots=True, eq=False)
class Variable:
    """A variable in a state space, or a kernel parameter."""

    name: str
    space: str
    size: int
    align: int
    type: str
    image: bytes = b""
    """Initial bytes; shorter than ``size`` means zeros follow."""
    pointers: list[Pointer] = field(default_factory=list)
    external: bool = False
    linkage: str = ""
    """Directive before its state space: ``.visible``, ``.extern``, ``.weak``, ``.common`` or none."""
    pointee: str = ""
    """State space that a ``.ptr`` parameter points into."""
    offset: int = 0
    """Offset within its space's block: parameters, shared and local memory. Set by the program's layout."""
    pointer_tokens: list[Token] = field(default_factory=list)
    """Where each of `pointers` is written."""
    register: Register | None = None
    """The register that a ``.reg`` parameter or result of a function is."""
    owned: bool = False
    """Whether it is an argument or result of the function itself, in local memory: ``mov`` takes its address."""


@dataclass(slots=True, frozen=True)
class RegisterOperand:
    """A register, possibly negated (``!%p1``); of a video instruction a part of it (``%r1.b3``) or its ``-%r1``."""

    register: Register
    negated: bool = False
    part: str = ""
    minus: bool = False


@dataclass(slots=True, frozen=True)
class Immediate:
    """A constant: ``kind`` is ``int``, ``f32`` or ``f64``; ``value`` an integer, or the float's bit pattern."""

    value: int
    kind: str = "int"


@dataclass(slots=True, frozen=True)
class SpecialRegister:
    """A read-only machine register such as ``%tid.x``."""

    name: str


@dataclass(slots=True, frozen=True)
class SymbolOperand:
    """The address of a variable or function, plus a constant."""

    variable: Variable
    addend: int = 0


@dataclass(slots=True, frozen=True)
class FunctionName:
    """The name of a ``.func``, in a call or where its address is taken; in a call also that of a prototype."""

    name: str


@dataclass(slots=True, frozen=True)
class Sink:
    """The ``_`` operand: the result is dropped."""


@dataclass(slots=True, frozen=True)
class VectorOperand:
    """``{a, b, c}``, also the list of registers of a matrix instruction."""

    items: tuple[Operand, ...]


@dataclass(slots=True, frozen=True)
class PairOperand:
    """``d|p``: two results."""

    first: Operand
    second: Operand


@dataclass(slots=True, frozen=True)
class AddressOperand:
    """``[base + addend]``, or ``[base, {coordinates}]`` for tensor copies."""

    base: Operand
    addend: int = 0
    coordinates: tuple[Operand, ...] | None = None


@dataclass(slots=True, eq=False)
class LabelOperand:
    """A branch target; ``block`` is known once the kernel's control flow is built."""

    name: str
    position: int = -1
    """Index of the instruction that the label stands before."""


@dataclass(slots=True, frozen=True)
class CallList:
    """``(a, b)`` in a call."""

    items: tuple[Operand, ...]


Operand = (
    RegisterOperand
    | Immediate
    | SpecialRegister
    | SymbolOperand
    | FunctionName
    | Sink
    | VectorOperand
    | PairOperand
    | AddressOperand
    | LabelOperand
    | CallList
)


@dataclass(slots=True, eq=False)
class Instruction:
    """One instruction with its place in the text."""

    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: RegisterOperand | None
    line: int
    column: int
    text: str
    provenance: str = ""

    @property
    def name(self) -> str:
        """Opcode with its modifiers, as written."""
        return self.opcode + "".join("." + modifier for modifier in self.modifiers)


@dataclass(slots=True, eq=False)
class Procedure:
    """A function that is called and not expanded in place: it calls itself, or its address is taken."""

    name: str
    address: int
    """What a function pointer to it holds."""
    start: int
    """Its first instruction in the kernel's code; the last one is its only ``ret``."""
    end: int
    """One after that."""
    parameters: list[Variable]
    results: list[Variable]
    variables: list[Variable]
    """All that lies in its frame: parameters, results, local variables, arguments of the calls it makes."""
    frame_bytes: int = 0
    """Size of a frame. Set by the program's layout."""


@dataclass(slots=True, eq=False)
class Function:
    """A ``.entry`` or ``.func``."""

    name: str
    is_entry: bool
    parameters: list[Variable]
    results: list[Variable]
    line: int
    instructions: list[Instruction] = field(default_factory=list)
    registers: list[Register] = field(default_factory=list)
    variables: list[Variable] = field(default_factory=list)
    """Shared, local and param variables declared inside."""
    directives: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Performance directives: ``maxntid``, ``reqntid``, ``maxnreg``, ``minnctapersm``, ``reqnctapercluster``, …"""
    directive_lines: dict[str, int] = field(default_factory=dict)
    """Where each of them stands."""
    annotations: list[tuple[int, str]] = field(default_factory=list)
    """(line, text) of the ``//@`` notes inside the body, and before it back to the end of the previous function."""
    labels: list[tuple[int, str]] = field(default_factory=list)
    """(line, name) of every label, in the order of the text."""
    has_body: bool = True
    linkage: str = ""
    """Directive before ``.entry`` or ``.func``, as a variable's."""
    procedures: list[Procedure] = field(default_factory=list)
    """Of a kernel whose calls were expanded: the functions that stand behind its own instructions."""


@dataclass(slots=True, eq=False)
class PtxModule:
    """A parsed module."""

    version: str
    target: str
    text: str
    header_line: int = 1
    """Line of the ``.target`` directive."""
    functions: dict[str, Function] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
