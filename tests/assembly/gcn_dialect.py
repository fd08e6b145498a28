"""A second dialect: enough of AMDGCN for scalar arithmetic, branches, loops, parameters and a fragment. A test double.

It differs from PTX in what the boundary must allow. Registers are allocated, each its own, when the whole trace is
known: values that stayed uniform get SGPRs, all others VGPRs, predicates SGPR pairs with a bit a lane. Where lanes
part, EXEC is narrowed and given back at the end of the branch.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from tilekit.assembly.dialect import FragmentFormat
from tilekit.assembly.numbers import Number
from tilekit.assembly.trace import (
    Bound,
    EndIf,
    EndLoop,
    If,
    LoadParameter,
    Loop,
    Operation,
    Placement,
    Register,
    Scope,
    SharedBase,
    Statement,
    Trace,
)
from tilekit.assembly.types import RegisterType
from tilekit.assembly.values import Value
from tilekit.targets import SM_80

GFX950 = replace(
    SM_80,
    name="gfx950",
    isa="gcn",
    architectures=("gfx9", "gfx942", "gfx950"),
    capabilities=frozenset(),
    lanes=64,
    matrix_waves=1,
    product="MI355X",
)

STORE = """//! fragment  store_global_f32
//! about     Store one f32 if `valid`.
//! in        address  gmem
//! in        value    f32
//! in        valid    pred
//! kind      store
//! target    gfx9
//! see       CDNA4 ISA, GLOBAL_STORE_DWORD
s_and_saveexec_b64 vcc, ${valid}
global_store_dword ${address}, ${value}, off
s_mov_b64 exec, vcc
"""

THREAD = """//! fragment  thread_index
//! about     Index of the thread within its workgroup.
//! out       thread  u32
//! kind      scalar
//! target    gfx9
//! see       AMDGPU ABI, initial VGPRs
v_and_b32 ${thread}, 0x3ff, v0
"""

_SCALAR = {
    "move": "s_mov_b32",
    "add": "s_add_u32",
    "sub": "s_sub_u32",
    "mul": "s_mul_i32",
    "and": "s_and_b32",
    "shr": "s_lshr_b32",
}
_VECTOR = {"add": "v_add_u32", "sub": "v_sub_u32", "mul": "v_mul_lo_u32", "and": "v_and_b32"}
_RELATIONS = {"lt": "lt", "le": "le", "gt": "gt", "ge": "ge", "eq": "eq", "ne": "lg"}


class GcnDialect:
    """A `tilekit.assembly.dialect.Dialect`."""

    isa = "gcn"
    fragments = FragmentFormat(
        suffix=".s",
        target=re.compile(r"(?P<architecture>gfx\d+)"),
        example="gfx942",
        local=re.compile(r"^\s*(?:(\w+):|(?!)(.*))"),
        guard=re.compile(r"(?!)(.*)"),
    )
    reserved = frozenset({"exec", "vcc", "m0"})

    def module(self, trace: Trace) -> str:
        """Return the assembly text."""
        spelling = _Spelling(trace)
        body = [line for statement in trace.body.lines() for line in spelling.lines(statement.statement)]
        return "\n".join(
            [
                f'.amdgcn_target "amdgcn-amd-amdhsa--{trace.target.name}"',
                ".text",
                f"{trace.name}:",
                *(line if line.endswith(":") else f"    {line}" for line in body),
                "    s_endpgm",
                "",
            ]
        )


class _Spelling:
    """The registers of one kernel, and its statements with them."""

    def __init__(self, trace: Trace) -> None:
        self._registers: dict[str, str] = {}
        self._scalars, self._vectors = 2, 1  # s[0:1] is the address of the parameters, v0 the thread
        self._saved: dict[int, str] = {}
        offset = 0
        self._offsets: dict[str, int] = {}
        for parameter in trace.parameters:
            size = parameter.type.bits // 8
            offset = -(-offset // size) * size
            self._offsets[parameter.name] = offset
            offset += size
        self._varying = _varying(trace.body)
        for register in _registers(trace.body):
            self._registers[register.name] = self._allocate(register.type, register.name not in self._varying)

    def _allocate(self, type_: RegisterType, uniform: bool) -> str:
        words = 2 if type_.kind == "predicate" else -(-type_.bits // 32)
        if type_.kind == "predicate" or (uniform and type_.kind != "float" and words == 1):
            first = self._scalars = -(-self._scalars // words) * words
            self._scalars += words
            return f"s{first}" if words == 1 else f"s[{first}:{first + 1}]"
        first = self._vectors = -(-self._vectors // words) * words  # pairs begin at even registers
        self._vectors = first + words
        return f"v{first}" if words == 1 else f"v[{first}:{first + 1}]"

    def lines(self, statement: Statement) -> list[str]:
        """The instructions and labels of a statement."""
        match statement:
            case Operation():
                return self._operation(statement)
            case SharedBase(result):
                return [f"s_mov_b32 {self._of(result)}, 0"]
            case LoadParameter(parameter, result):
                wide, offset = parameter.type.bits == 64, self._offsets[parameter.name]
                if not wide:
                    return [f"s_load_dword {self._of(result)}, s[0:1], {offset}", "s_waitcnt lgkmcnt(0)"]
                low, high = _halves(self._of(result))
                load = f"s_load_dwordx2 vcc, s[0:1], {offset}"
                return [load, "s_waitcnt lgkmcnt(0)", f"v_mov_b32 {low}, vcc_lo", f"v_mov_b32 {high}, vcc_hi"]
            case If(condition, holds, end) if condition.text not in self._varying:
                return [f"s_cmp_lg_u64 {self._of(condition)}, 0", f"s_cbranch_scc{0 if holds else 1} {end}"]
            case If(condition, holds, end):
                saved = self._save(statement)
                taken = "s_and_saveexec_b64" if holds else "s_andn1_saveexec_b64"
                return [f"{taken} {saved}, {self._of(condition)}", f"s_cbranch_execz {end}"]
            case EndIf(opened):
                restored = [f"s_mov_b64 exec, {self._saved[id(opened)]}"] if id(opened) in self._saved else []
                return [f"{opened.end}:", *restored]
            case Loop(top):
                return [f"s_mov_b64 {self._save(statement)}, exec", f"{top}:"]
            case EndLoop(opened, again) if again.text not in self._varying:
                return [f"s_cmp_lg_u64 {self._of(again)}, 0", f"s_cbranch_scc1 {opened.top}"]
            case EndLoop(opened, again):
                back = [f"s_and_b64 exec, exec, {self._of(again)}", f"s_cbranch_execnz {opened.top}"]
                return [*back, f"s_mov_b64 exec, {self._saved[id(opened)]}"]
            case Placement(fragment, bound):
                before: list[str] = []
                spelled = {name: self._in_vectors(what, before) for name, what in bound.items()}
                return [*before, *fragment.bind(spelled)]
            case str():
                return [statement]
        raise AssertionError(statement)

    def _operation(self, operation: Operation) -> list[str]:
        result, name = self._of(operation.result), operation.name
        operands = [self._of(operand) for operand in operation.operands]
        if name in _RELATIONS and all(_is_scalar(operand) for operand in operands):
            a, b = operands
            return [f"s_cmp_{_RELATIONS[name]}_u32 {a}, {b}", f"s_cselect_b64 {result}, -1, 0"]
        if operation.type.kind == "predicate":
            return [f"s_{name}_b64 {result}, {', '.join(operands)}"]
        if name == "move" and operation.type.bits == 64:
            return [f"v_mov_b32 {to}, {of}" for to, of in zip(_halves(result), _halves(operands[0]), strict=True)]
        if _is_scalar(result) and operation.type.bits == 32 and name not in _RELATIONS:
            return [f"{_SCALAR[name]} {result}, {', '.join(operands)}"]
        if name == "move":
            return [f"v_mov_b32 {result}, {operands[0]}"]
        before: list[str] = []
        a, b, *condition = (self._in_vectors(operand, before) for operand in operation.operands)
        if name in _RELATIONS:
            return [*before, f"v_cmp_{name}_u32 {result}, {a}, {b}"]
        if name == "select":
            return [*before, f"v_cndmask_b32 {result}, {b}, {a}, {condition[0]}"]
        if name == "widen":
            return [*before, f"v_mad_u64_u32 {result}, vcc, {a}, {b}, 0"]
        if operation.type.bits == 64:
            (low, high), (a_low, a_high), (b_low, b_high) = map(_halves, (result, a, b))
            return [
                *before,
                f"v_add_co_u32 {low}, vcc, {a_low}, {b_low}",
                f"v_addc_co_u32 {high}, vcc, {a_high}, {b_high}, vcc",
            ]
        if operation.type.kind == "float":
            return [*before, f"v_{name}_f32 {result}, {a}, {b}"]
        if name == "shr":
            return [*before, f"v_lshrrev_b32 {result}, {b}, {a}"]
        return [*before, f"{_VECTOR[name]} {result}, {a}, {b}"]

    def _of(self, what: Value | Number) -> str:
        if isinstance(what, Value):
            return self._registers[what.text]
        if what.type.kind == "float":
            return f"0x{struct.pack('>f', what.value).hex()}"
        return str(what.value)

    def _in_vectors(self, what: Bound, before: list[str]) -> str:
        """An operand where VGPRs must stand, but for predicates; what is none is copied."""
        assert isinstance(what, (Value, Number)), what
        text = self._of(what)
        if not _is_scalar(text) or what.type.kind == "predicate":
            return text
        copy = self._allocate(what.type, uniform=False)
        before.append(f"v_mov_b32 {copy}, {text}")
        return copy

    def _save(self, statement: Statement) -> str:
        first = self._scalars = -(-self._scalars // 2) * 2
        self._scalars += 2
        return self._saved.setdefault(id(statement), f"s[{first}:{first + 1}]")


def _is_scalar(text: str) -> bool:
    return not text.startswith("v")


def _halves(pair: str) -> tuple[str, str]:
    first = int(re.match(r"v\[(\d+)", pair)[1])  # type: ignore[index]
    return f"v{first}", f"v{first + 1}"


def _registers(scope: Scope) -> Iterator[Register]:
    yield from scope.registers
    for item in scope.items:
        if isinstance(item, Scope):
            yield from _registers(item)


def _varying(body: Scope) -> set[str]:
    """Registers that may differ from lane to lane.

    The trace says of a value what was known when it was made; what is assigned later, in a loop or where lanes have
    parted, changes what was made before, so the whole kernel is gone through until nothing changes.
    """
    statements = [line.statement for line in body.lines()]
    written = Counter(s.result.text for s in statements if isinstance(s, Operation))
    varying: set[str] = set()
    parting: set[int] = set()
    while True:
        before = len(varying), len(parting)
        parted: list[bool] = []
        for statement in statements:
            match statement:
                case Operation(_, _, result, operands):
                    if any(_varies(what, varying) for what in operands) or (any(parted) and written[result.text] > 1):
                        varying.add(result.text)
                case Placement(fragment, bound):
                    made = {o.name for o in fragment.operands if o.direction != "in"}
                    if not fragment.uniform or any(_varies(bound[name], varying) for name in bound.keys() - made):
                        varying |= {
                            what.text for name, what in bound.items() if name in made and isinstance(what, Value)
                        }
                case If(condition) | EndLoop(_, condition):
                    if condition.text in varying:
                        parting.add(id(statement if isinstance(statement, If) else statement.opened))
            match statement:
                case If() | Loop():
                    parted.append(id(statement) in parting)
                case EndIf() | EndLoop():
                    parted.pop()
        if before == (len(varying), len(parting)):
            return varying


def _varies(what: Bound, varying: set[str]) -> bool:
    return isinstance(what, Value) and what.text in varying
