"""The writer: traces Python into one PTX entry, line by line, with the origin of every line.

Python runs once; what it calls on the writer becomes text. Device loops and branches are Python ``for`` and ``with``::

    for k in w.range(k_blocks, name="k"):
        with w.when(k == last):
            ...
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tilekit.assembly.errors import TraceError
from tilekit.assembly.fragment import KINDS, Fragment, FragmentOperand, ptx_fragments
from tilekit.assembly.provenance import Origin, origin
from tilekit.assembly.shared import SharedMemory
from tilekit.assembly.types import F32, MAP, PRED, SMEM, U32, U64, RegisterType, accepts
from tilekit.assembly.values import Operand, RegisterTile, Value

_SHARED_SYMBOL = "dynamic_smem"


@dataclass(frozen=True)
class Line:
    """One emitted line: assembly text, nesting depth, and where it came from."""

    text: str
    depth: int
    role: str
    origin: Origin | None


@dataclass
class Scope:
    """A ``{ }`` block with registers of its own; `depth` is the nesting of its contents."""

    depth: int
    registers: dict[str, list[str]] = field(default_factory=dict)
    items: list[Line | Scope] = field(default_factory=list)


@dataclass(frozen=True)
class Parameter:
    """One kernel parameter as declared: a scalar register type, or a 128-byte tensor map."""

    name: str
    type: RegisterType


@dataclass(frozen=True)
class Role:
    """A named set of warps and what their instructions may do.

    Attributes
    ----------
    name, warps
        The name in reports, and the warp indices within the CTA.
    may
        Fragment kinds allowed in the role, besides ``scalar`` and ``control`` which every role may use.
    registers
        Registers a thread after the role's ``setmaxnreg``, or ``None`` where the kernel does not rebalance.
    """

    name: str
    warps: range
    may: frozenset[str]
    registers: int | None = None


class FragmentGroup:
    """The fragments of one file, as methods."""

    def __init__(self, writer: Writer, name: str, fragments: dict[str, Fragment]) -> None:
        self._writer = writer
        self._name = name
        self._fragments = fragments

    def __getattr__(self, name: str) -> Callable[..., Any]:
        fragment = self._fragments.get(name)
        if fragment is None:
            raise AttributeError(
                f"ptx.{self._name} has no fragment {name!r}; it has {', '.join(sorted(self._fragments))}"
            )
        return lambda **operands: self._writer.place(fragment, operands)


class FragmentLibrary:
    """``w.ptx``: every fragment file as an attribute."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def __getattr__(self, name: str) -> FragmentGroup:
        fragments = ptx_fragments().get(name)
        if fragments is None:
            raise AttributeError(f"no fragment file {name!r}; there are {', '.join(sorted(ptx_fragments()))}")
        return FragmentGroup(self._writer, name, fragments)


class Writer:
    """Traces one kernel entry.

    Parameters
    ----------
    name
        The entry's symbol.
    target
        PTX target such as ``"sm_90a"``.
    threads
        Threads of a CTA; also fixes the register count at entry, which ``setmaxnreg`` needs (ptxas drops it otherwise, C7508).
    cluster
        CTAs of a cluster.
    """

    def __init__(self, name: str, *, target: str, threads: int, cluster: int = 1) -> None:
        self.name = name
        self.target = target
        self.threads = threads
        self.cluster = cluster
        self.ptx = FragmentLibrary(self)
        self.shared = SharedMemory()
        self.parameters: list[Parameter] = []
        self.roles: list[Role] = []
        self._isa = (8, 0)
        self._names: dict[str, int] = {}
        self._root = Scope(depth=1)
        self._scopes = [self._root]
        self._depth = 1
        self._role: Role | None = None
        self._divergent = 0
        self._open: list[tuple[str, Origin]] = []
        self.shared_base = self.new(SMEM, "smem_base", uniform=True)
        self.emit(f"mov.u32 {self.shared_base.text}, {_SHARED_SYMBOL};")

    # -- registers and text -------------------------------------------------------------------------------------------

    def new(self, type_: RegisterType, hint: str, *, uniform: bool) -> Value:
        """Declare a register of `type_` in the current scope; `hint` becomes part of its name."""
        name = self._unique(hint)
        self._scopes[-1].registers.setdefault(type_.declared, []).append(name)
        return Value(self, type_, name, uniform=uniform)

    def tile(self, type_: RegisterType, count: int, hint: str) -> RegisterTile:
        """Declare `count` consecutive registers ``hint0 … hint<count-1>`` (one ``.reg hint<count>`` range)."""
        name = self._unique(hint) + "_"
        self._scopes[-1].registers.setdefault(type_.declared, []).append(f"{name}<{count}>")
        return RegisterTile([Value(self, type_, f"{name}{i}", uniform=False) for i in range(count)])

    def constant(self, type_: RegisterType, value: Operand) -> Value:
        """Return a new register holding `value` (a number, or another register's present value)."""
        register = self.new(type_, "c", uniform=True)
        register.assign(value)
        return register

    def variable(self, type_: RegisterType, initial: Operand, name: str) -> Value:
        """Declare a named register that the kernel will `assign` to, holding `initial`."""
        register = self.new(type_, name, uniform=not isinstance(initial, Value) or initial.uniform)
        register.assign(initial)
        return register

    def operand(self, value: Operand, type_: RegisterType) -> str:
        """Spell a register or a Python number as an operand of `type_`."""
        if isinstance(value, Value):
            return value.text
        if type_ is F32:
            return f32_literal(float(value))
        if isinstance(value, float):
            raise TraceError(f"{value!r} given where a {type_} is needed; write an integer", code="TK-TRACE-005")
        return str(int(value))

    def emit(self, text: str) -> None:
        """Append one line of assembly."""
        role = self._role.name if self._role else "setup"
        self._scopes[-1].items.append(Line(text, self._depth, role, origin()))

    def place(self, fragment: Fragment, given: dict[str, Any]) -> Any:
        """Emit `fragment` with the operands `given` and return its outputs (None, a value, or a tuple).

        Raises
        ------
        FragmentError
            Naming the fragment, the operand and what was given: a missing or unknown operand, a wrong register type or list length,
            an illegal immediate, a fragment this role may not use, an aligned fragment where lanes may have diverged.
        """
        inputs = {o.name: o for o in fragment.operands if o.direction != "out"}
        immediates = {i.name: i for i in fragment.immediates}
        unknown = given.keys() - inputs.keys() - immediates.keys()
        missing = (inputs.keys() | immediates.keys()) - given.keys()
        if unknown or missing:
            raise fragment.error(
                f"takes {', '.join([*inputs, *immediates]) or 'no operands'}; missing: {', '.join(sorted(missing)) or 'none'}; "
                f"unknown: {', '.join(sorted(unknown)) or 'none'}"
            )
        if not self.target.startswith(fragment.target) and int(re.sub(r"\D", "", self.target)) <= int(
            re.sub(r"\D", "", fragment.target)
        ):
            raise fragment.error(f"needs {fragment.target}; this kernel is for {self.target}", "TK-FRAG-003")
        if self._role and fragment.kind not in self._role.may | {"scalar", "control"}:
            raise fragment.error(
                f"is a {fragment.kind!r} fragment ({KINDS[fragment.kind]}); role {self._role.name!r} may only use "
                f"{', '.join(sorted(self._role.may))}",
                "TK-ROLE-001",
            )
        if fragment.aligned and self._divergent:
            raise fragment.error("must be executed by whole warps, but lanes may have diverged here", "TK-FRAG-004")
        bound = {name: self._immediate(fragment, name, given[name]) for name in immediates}
        uniform = fragment.uniform
        for name, operand in inputs.items():
            bound[name] = self._register_operand(fragment, operand, given[name])
            uniform = uniform and (not isinstance(given[name], Value) or given[name].uniform)
        outputs = []
        for operand in fragment.operands:
            if operand.direction == "out":
                result = self._output(operand, fragment, uniform=uniform)
                bound[operand.name] = (
                    ", ".join(v.text for v in result) if isinstance(result, RegisterTile) else result.text
                )
                outputs.append(result)
        for line in fragment.bind(bound):
            self.emit(line)
        self._isa = max(self._isa, fragment.isa)
        return outputs[0] if len(outputs) == 1 else tuple(outputs) or None

    # -- parameters ---------------------------------------------------------------------------------------------------

    def parameter(self, name: str, type_: RegisterType) -> Value:
        """Declare a scalar kernel parameter and load it."""
        self.parameters.append(Parameter(name, type_))
        value = self.new(type_, name, uniform=True)
        suffix = type_.arithmetic or f"b{type_.bits}"
        self.emit(f"ld.param.{suffix} {value.text}, [{name}_param];")
        return value

    def tensor_map(self, name: str) -> Value:
        """Declare a tensor map parameter and return its generic address.

        The map stays in parameter space (a grid constant): TMA reads it there without a copy.
        """
        self.parameters.append(Parameter(name, MAP))
        value = self.new(MAP, name, uniform=True)
        self.emit(f"mov.b64 {value.text}, {name}_param;")
        self.emit(f"cvta.param.u64 {value.text}, {value.text};")
        return value

    # -- small expressions --------------------------------------------------------------------------------------------

    def select(self, condition: Value, if_true: Operand, if_false: Operand, type_: RegisterType = U32) -> Value:
        """``condition ? if_true : if_false`` without a branch."""
        result = self.new(type_, "sel", uniform=condition.uniform)
        suffix = type_.arithmetic or f"b{type_.bits}"
        self.emit(
            f"selp.{suffix} {result.text}, {self.operand(if_true, type_)}, {self.operand(if_false, type_)}, {condition.text};"
        )
        return result

    def minimum(self, a: Value, b: Operand) -> Value:
        """The smaller of two integers of one type."""
        result = self.new(a.type, "min", uniform=a.uniform and (not isinstance(b, Value) or b.uniform))
        self.emit(f"min.{a.type.arithmetic} {result.text}, {a.text}, {self.operand(b, a.type)};")
        return result

    def widen_multiply(self, a: Value, b: Operand) -> Value:
        """The 64-bit product of two 32-bit unsigned integers."""
        result = self.new(U64, "wide", uniform=a.uniform and (not isinstance(b, Value) or b.uniform))
        self.emit(f"mul.wide.u32 {result.text}, {a.text}, {self.operand(b, U32)};")
        return result

    # -- control flow -------------------------------------------------------------------------------------------------

    def range(self, stop: Operand, *, start: Operand = 0, step: Operand = 1, name: str = "i") -> Iterator[Value]:
        """Device loop over ``start, start + step, … < stop`` (u32); the body is traced once.

        Leave it only at its end: a Python ``break`` cannot be traced and is reported when the enclosing scope closes. The loop is
        marked ``nounroll``: ptxas otherwise unrolls k-loops 4 to 8 times and takes five times as long (measured with 13.0.88).
        """
        where = origin()
        uniform = all(not isinstance(v, Value) or v.uniform for v in (start, stop, step))
        counter = self.new(U32, name, uniform=uniform)
        counter.assign(start)
        top, end = self._unique(f"{name}_loop"), self._unique(f"{name}_end")
        limit = self.operand(stop, U32)
        skip = self.new(PRED, f"{name}_skip", uniform=uniform)
        self.emit(f"setp.ge.u32 {skip.text}, {counter.text}, {limit};")
        self.emit(f"@{skip.text} bra {end};")
        self._label(top)
        self.emit('.pragma "nounroll";')
        self._open.append((f"device loop over {name!r}", where))
        self._divergent += not uniform
        self._depth += 1
        yield counter
        self._depth -= 1
        self._divergent -= not uniform
        self._open.pop()
        again = self.new(PRED, f"{name}_again", uniform=uniform)
        self.emit(f"add.u32 {counter.text}, {counter.text}, {self.operand(step, U32)};")
        self.emit(f"setp.lt.u32 {again.text}, {counter.text}, {limit};")
        self.emit(f"@{again.text} bra {top};")
        self._label(end)

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """Device branch: the body runs in the lanes for which `condition` (a predicate) holds."""
        if not isinstance(condition, Value) or condition.type is not PRED:
            raise TraceError(
                f"w.when() takes a device predicate such as `a < b`, not {condition!r}; for a build-time choice write a Python `if`",
                code="TK-TRACE-006",
            )
        end = self._unique("endif")
        self.emit(f"@!{condition.text} bra {end};")
        divergent = not condition.uniform
        self._divergent += divergent
        self._depth += 1
        with self._construct("when"):
            yield
        self._depth -= 1
        self._divergent -= divergent
        self._label(end)

    @contextmanager
    def role(self, role: Role, warp: Value) -> Iterator[None]:
        """Trace the body of `role`: entered by its warps, everybody else jumps over it; registers inside are the role's own."""
        if self._role is not None:
            raise TraceError(
                f"role {role.name!r} opened inside role {self._role.name!r}; roles are disjoint sets of warps",
                code="TK-ROLE-002",
            )
        for other in self.roles:
            if set(other.warps) & set(role.warps):
                raise TraceError(f"roles {other.name!r} and {role.name!r} share warps", code="TK-ROLE-002")
        self.roles.append(role)
        outside = ((warp - role.warps.start) >= len(role.warps)) if len(role.warps) > 1 else (warp != role.warps.start)
        end = self._unique(f"end_{role.name}")
        self.emit(f"@{outside.text} bra {end};")
        self._role = role
        self._depth += 1
        scope = Scope(self._depth)
        self._scopes[-1].items.append(scope)
        self._scopes.append(scope)
        with self._construct(f"role {role.name!r}"):
            yield
        self._depth -= 1
        self._scopes.pop()
        self._role = None
        self._label(end)

    # -- the finished text --------------------------------------------------------------------------------------------

    def text(self) -> str:
        """Return the finished module.

        Raises
        ------
        TraceError
            If a device loop or branch is still open (a ``break``, ``return`` or exception left it).
        """
        self._check_closed()
        parameters = ",\n".join(
            f"    .param .align 64 .b8 {p.name}_param[128]"
            if p.type is MAP
            else f"    .param .{_parameter_type(p.type)} {p.name}_param"
            for p in self.parameters
        )
        head = [
            f".version {self._isa[0]}.{self._isa[1]}",
            f".target {self.target}",
            ".address_size 64",
            "",
            f".extern .shared .align 1024 .b8 {_SHARED_SYMBOL}[];",
            "",
            *(f"//@role {r.name} warps={r.warps.start}-{r.warps.stop - 1}" for r in self.roles),
            *self.shared.annotations(),
            f".visible .entry {self.name}(",
            parameters,
            ")",
            f".maxntid {self.threads}, 1, 1",
            ".minnctapersm 1",
        ]
        if self.cluster > 1:
            head += [".explicitcluster", f".reqnctapercluster {self.cluster}, 1, 1"]
        return "\n".join([*head, "{", *_render(self._root), "    ret;", "}", ""])

    # -- helpers ------------------------------------------------------------------------------------------------------

    @contextmanager
    def _construct(self, what: str) -> Iterator[None]:
        self._open.append((what, origin()))
        yield
        if self._open[-1][0] != what:
            self._check_closed()
        self._open.pop()

    def _check_closed(self) -> None:
        for what, where in reversed(self._open):
            if what.startswith("device loop"):
                raise TraceError(
                    f"the {what} opened at {where} was left by a Python `break`, `return` or exception; the body of a device loop is "
                    f"traced once and ends at its end. Put the rest under `with w.when(...)`.",
                    code="TK-TRACE-007",
                )

    def _unique(self, hint: str) -> str:
        count = self._names.get(hint, -1) + 1
        self._names[hint] = count
        return hint if count == 0 else f"{hint}_{count}" if hint[-1].isdigit() else f"{hint}{count}"

    def _label(self, name: str) -> None:
        self.emit(f"{name}:")

    def _immediate(self, fragment: Fragment, name: str, value: Any) -> str:
        immediate = next(i for i in fragment.immediates if i.name == name)
        if not immediate.legal(value):
            raise fragment.error(f"immediate {name}={value!r} is not one of {immediate.rule}")
        return str(value)

    def _register_operand(self, fragment: Fragment, operand: FragmentOperand, value: Any) -> str:
        wanted = f"{operand.type}" if operand.length is None else f"{operand.type}[{operand.length or '*'}]"
        if operand.length is not None:
            if not isinstance(value, RegisterTile) or (operand.length and len(value) != operand.length):
                raise fragment.error(f"operand {operand.name} is {wanted}; given {value!r}")
            wrong = next((v for v in value if not accepts(operand.type, v.type)), None)
            if wrong is not None:
                raise fragment.error(f"operand {operand.name} is {wanted}; given a tile holding {wrong!r}")
            return ", ".join(v.text for v in value)
        if isinstance(value, bool) and operand.direction == "in" and operand.type is PRED:
            return str(int(value))
        if (
            isinstance(value, (int, float))
            and operand.direction == "in"
            and (operand.type.arithmetic or operand.type.name.startswith("b"))
        ):
            if operand.type.space is None:
                return self.operand(value, operand.type)
        if not isinstance(value, Value) or not accepts(operand.type, value.type):
            raise fragment.error(f"operand {operand.name} is {wanted}; given {value!r}")
        return value.text

    def _output(self, operand: FragmentOperand, fragment: Fragment, *, uniform: bool) -> Value | RegisterTile:
        if operand.length is None:
            return self.new(operand.type, operand.name, uniform=uniform)
        if operand.length == 0:
            raise fragment.error(
                f"output {operand.name} has no fixed length; declare it `inout` and pass a tile", "TK-FRAG-001"
            )
        return self.tile(operand.type, operand.length, operand.name)


def f32_literal(value: float) -> str:
    """Spell a float32 constant exactly, in PTX's hexadecimal form."""
    return "0f" + struct.pack(">f", value).hex().upper()


def _parameter_type(type_: RegisterType) -> str:
    return type_.arithmetic or f"b{type_.bits}"


def _render(scope: Scope) -> list[str]:
    lines = []
    pad = "    " * scope.depth
    for declared, names in sorted(scope.registers.items()):
        lines += [f"{pad}.reg .{declared} {chunk};" for chunk in _wrap(names, 100)]
    for item in scope.items:
        if isinstance(item, Scope):
            outer = "    " * (item.depth - 1)
            lines += [f"{outer}{{", *_render(item), f"{outer}}}"]
        else:
            lines.append(_annotated(item))
    return lines


def _annotated(line: Line) -> str:
    is_label = line.text.endswith(":") and not line.text.startswith(" ")
    text = "    " * (line.depth - is_label) + line.text
    if is_label or line.origin is None or line.text.strip() in "{}":
        return text
    return f"{text:<100} //@ {line.role} {line.origin.component} {line.origin.file}:{line.origin.line}"


def _wrap(names: list[str], width: int) -> Iterator[str]:
    chunk = ""
    for name in names:
        if name.endswith(">"):
            yield name
            continue
        if chunk and len(chunk) + len(name) > width:
            yield chunk
            chunk = ""
        chunk = f"{chunk}, {name}" if chunk else name
    if chunk:
        yield chunk
