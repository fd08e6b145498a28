"""The writer: traces Python into one kernel, statement by statement, with the origin of each; a dialect spells it.

Python runs once; what it calls on the writer becomes text. Device loops and branches are Python ``for`` and ``with``::

    for k in w.range(k_blocks, name="k"):
        with w.when(k == last):
            ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from tilekit.assembly.control_flow import ControlFlow
from tilekit.assembly.errors import FragmentError, TraceError
from tilekit.assembly.fit import require_call
from tilekit.assembly.fragment import KINDS, Fragment, FragmentOperand
from tilekit.assembly.fragment_files import local_names
from tilekit.assembly.instruction_sets import DIALECTS
from tilekit.assembly.legal import (
    Whole,
    illegal,
    require_register_type,
    require_symbol,
    require_whole,
    require_word,
    with_article,
)
from tilekit.assembly.library import FragmentFiles, FragmentLibrary, bind_immediate, bind_operand
from tilekit.assembly.loop_uniformity import check_loops
from tilekit.assembly.named_barriers import NamedBarriers
from tilekit.assembly.names import Names
from tilekit.assembly.numbers import number
from tilekit.assembly.provenance import Origin, origin
from tilekit.assembly.role import Role, entry_registers, require_warpgroups
from tilekit.assembly.shared import SharedMemory
from tilekit.assembly.trace import (
    OPERANDS,
    OPERATIONS,
    Bound,
    LoadParameter,
    Operation,
    Placement,
    Register,
    SharedBase,
    Source,
    Statement,
    Trace,
)
from tilekit.assembly.types import MAP, PARAMETER_TYPES, PRED, SMEM, U32, U64, RegisterType
from tilekit.assembly.uses import Along, Element, Use, Uses
from tilekit.assembly.values import Operand, RegisterTile, Value, all_uniform
from tilekit.assembly.verbs import NEUTRAL, Verbs
from tilekit.targets import CHIPS, Target

__all__ = ["MAX_CLUSTER", "MAX_PROFILE", "Parameter", "Role", "Writer", "require_warpgroups"]

MAX_PROFILE = 65536
"""Tiles of a CTA that a kernel can note the times of: some megabytes a CTA."""

MAX_CLUSTER = 16
"""CTAs of a cluster where the launch allows more than every chip does (CUDA, non-portable cluster sizes)."""


@dataclass(frozen=True)
class Parameter:
    """One kernel parameter as declared: a scalar register type, or a 128-byte tensor map.

    Attributes
    ----------
    name, type
        As in the text.
    value
        What it is in a launch, given the call (`tilekit.tiles.call.Call`); None where who launches says.
    """

    name: str
    type: RegisterType
    value: Callable[[Any], Any] | None = None


class Writer(ControlFlow, Verbs):
    """Traces one kernel entry.

    Parameters
    ----------
    name
        The entry's symbol.
    target
        A chip, or the name of one (``"sm_90a"``).
    threads
        Threads of a CTA.
    cluster
        CTAs of a cluster.
    resident
        CTAs that a multiprocessor is to hold at once: the registers of its threads are divided by it.
    profile_tiles
        Tiles of a CTA whose times the kernel is to note (`tilekit.drivers.profiler`), 0 for none.
    uses
        Compares what components do with the call's arrays with what the kernel declares; None where it declares none.

    Raises
    ------
    TraceError
        ``TK-TRACE-008`` for a target the writer does not know; ``TK-TARGET-003`` for a cluster on a chip that has none.
    """

    def __init__(
        self,
        name: str,
        *,
        target: str | Target,
        threads: int,
        cluster: int = 1,
        resident: int = 1,
        profile_tiles: int = 0,
        uses: Uses | None = None,
    ) -> None:
        chip = target if isinstance(target, Target) else CHIPS.get(target) if isinstance(target, str) else None
        if chip is None:
            raise TraceError(f"target={target!r} is none of {', '.join(CHIPS)}", code="TK-TRACE-008")
        if chip.isa not in DIALECTS:
            raise TraceError(
                f"target {chip.name} has the instruction set {chip.isa!r}, which no dialect spells; there is "
                f"{', '.join(DIALECTS)}",
                code="TK-TRACE-008",
            )
        require_whole("Writer", "cluster", cluster, Whole(1, MAX_CLUSTER))
        if cluster > 1 and not chip.has("clusters"):
            raise TraceError(
                f"kernel {name!r} is for clusters of {cluster} CTAs, and {chip.name} has no clusters; nearest: 1",
                code="TK-TARGET-003",
            )
        require_symbol("Writer", "name", name)
        # What is not a multiple of a warp's lanes still has whole warps: the last one's are idle.
        require_whole("Writer", "threads", threads, Whole(1, chip.max_threads))
        require_whole("Writer", "resident", resident, Whole(1))
        require_whole("Writer", "profile_tiles", profile_tiles, Whole(0, MAX_PROFILE))
        if uses is not None and not callable(uses):
            raise illegal("Writer", "uses", uses, "what is called with each Use, or None")
        self.name = name
        self.target = chip
        self.dialect = DIALECTS[chip.isa]
        self.threads = threads
        self.cluster = cluster
        self.resident = resident
        self.profile_tiles = profile_tiles
        self._uses = uses
        self.profiler: object | None = None
        """What notes the kernel's times, once it is declared (`tilekit.drivers.profiler.TileProfiler`)."""
        self.fragments = FragmentFiles(self)
        self.isa = FragmentLibrary(self, NEUTRAL)
        self.shared = SharedMemory()
        self.parameters: list[Parameter] = []
        self.lost_uniform: list[Statement] = []
        """The statements that left a register different from lane to lane that was uniform before."""
        self.broadcasts: set[str] = set()
        """Registers that are uniform whatever they were made of."""
        self.placed: set[str] = set()
        """The fragments placed so far, as `Fragment.call` says."""
        self._reserved = self.dialect.reserved | local_names(self.dialect)
        self._names = Names(self._reserved)
        self._hygienic: dict[Fragment, Fragment] = {}
        ControlFlow.__init__(self)
        self.warp_indices: set[str] = set()
        """Registers that hold the warp's index."""
        self._declared: dict[str, Origin] = {}
        self.barriers = NamedBarriers(chip, threads)
        self.shared_base = self.new(SMEM, "smem_base", uniform=True)
        self.emit(SharedBase(self.shared_base))

    # -- registers and text -------------------------------------------------------------------------------------------

    def new(self, type_: RegisterType, hint: str, *, uniform: bool) -> Value:
        """Declare a register of `type_` in the current scope; `hint` becomes part of its name.

        Raises
        ------
        TraceError
            ``TK-PART-001`` for what is no register type, and for a hint that is no symbol of assembly text.
        """
        require_register_type("w.new", "type_", type_)
        require_symbol("w.new", "hint", hint)
        name = self._names.new(hint)
        self._scopes[-1].registers.append(Register(name, type_))
        self.presence.declared(name)
        return Value(self, type_, name, uniform=uniform)

    def tile(self, type_: RegisterType, count: int, hint: str) -> RegisterTile:
        """Declare `count` consecutive registers ``hint0 … hint<count-1>``; hints are those of `new`."""
        require_register_type("w.tile", "type_", type_)
        require_whole("w.tile", "count", count, Whole(1))
        require_symbol("w.tile", "hint", hint)
        name = self._names.prefix(hint, count)
        self._scopes[-1].registers.append(Register(name, type_, count))
        values = [Value(self, type_, f"{name}{i}", uniform=False) for i in range(count)]
        for value in values:
            self.presence.declared(value.text)
        return RegisterTile(values)

    def constant(self, type_: RegisterType, value: Operand) -> Value:
        """Return a new register holding `value` (a number, or another register's present value)."""
        require_register_type("w.constant", "type_", type_)
        register = self.new(type_, "c", uniform=True)
        register.assign(value)
        return register

    def variable(self, type_: RegisterType, initial: Operand, name: str) -> Value:
        """Declare a named register that the kernel will `assign` to, holding `initial`; names are as hints of `new`."""
        require_register_type("w.variable", "type_", type_)
        require_symbol("w.variable", "name", name)
        register = self.new(type_, name, uniform=not isinstance(initial, Value) or initial.uniform)
        register.assign(initial)
        self.presence.is_variable(register)
        return register

    def operand(self, value: Operand, type_: RegisterType) -> Source:
        """Check a register or a Python number as an operand of `type_`.

        Raises
        ------
        TraceError
            ``TK-TRACE-005`` for a register of another class, or a number that `type_` cannot hold.
        """
        if not isinstance(value, Value):
            return number(value, type_)
        if not value.type.shares_registers(type_):
            raise TraceError(f"{value!r} given where {with_article(type_)} is needed", code="TK-TRACE-005")
        self.presence.require(value)
        return value

    def operate(self, name: str, type_: RegisterType, result_type: RegisterType, *operands: Operand) -> Value:
        """Trace one of `tilekit.assembly.trace.OPERATIONS` on operands of `type_` and return its result."""
        if not isinstance(name, str) or name not in OPERANDS:
            require_word("w.operate", "name", name, tuple(OPERANDS))
        require_register_type("w.operate", "type_", type_)
        require_register_type("w.operate", "result_type", result_type)
        if len(operands) != OPERANDS[name]:
            raise illegal("w.operate", "*operands", operands, f"{OPERANDS[name]} for {name!r}: {OPERATIONS[name]}")
        result = self.new(result_type, name, uniform=all_uniform(*operands))
        self.emit(Operation(name, type_, result, tuple([self.operand(operand, type_) for operand in operands])))
        return result

    def place(self, fragment: Fragment, /, *unnamed: Any, **given: Any) -> Any:
        """Emit `fragment` with the operands `given` and return its outputs (None, a value, or a tuple).

        Raises
        ------
        FragmentError
            Naming the fragment, the operand and what was given: a missing, unknown or unnamed operand, a wrong type or
            list length, an illegal immediate, what is no fragment (``TK-FRAG-002``), a fragment the target does not
            have (``TK-FRAG-003``), an aligned fragment where lanes may have diverged (``TK-FRAG-004``), a fragment this
            role may not use (``TK-ROLE-001``).
        """
        if not isinstance(fragment, Fragment):
            raise FragmentError(
                f"place takes a fragment, as w.ptx, w.gcn or w.fragments(path) have them, and was given "
                f"{type(fragment).__name__} {fragment!r}; shared memory is reserved by w.shared.place",
                code="TK-FRAG-002",
            )
        inputs, immediates = fragment.inputs, {i.name: i for i in fragment.immediates}
        if unnamed:
            named = ", ".join(f"{name}=..." for name in (*inputs, *immediates))
            raise fragment.error(f"takes its operands by name, and was given {len(unnamed)} without; write ({named})")
        taken = inputs.keys() | immediates.keys()
        if taken != given.keys():
            unknown, missing = given.keys() - taken, taken - given.keys()
            raise fragment.error(
                f"takes {', '.join([*inputs, *immediates]) or 'no operands'}; missing: "
                f"{', '.join(sorted(missing)) or 'none'}; unknown: {', '.join(sorted(unknown)) or 'none'}"
            )
        self._check_placement(fragment)
        bound: dict[str, Bound] = {name: bind_immediate(fragment, immediates[name], given[name]) for name in immediates}
        sources = {name: bind_operand(fragment, inputs[name], given[name]) for name in inputs}
        bound |= sources
        for source in sources.values():
            for value in _registers(source):
                self.presence.require(value)
        uniform = fragment.uniform and all_uniform(*sources.values())
        outputs, loses = [], False
        for operand in fragment.operands:
            if operand.direction == "out":
                bound[operand.name] = result = self._output(operand, uniform=uniform)
                outputs.append(result)
            elif operand.direction == "inout" and isinstance(given[operand.name], Value):
                keeps = uniform and not self.divergent
                loses = loses or (given[operand.name].uniform and not keeps)
                given[operand.name].uniform = keeps
                self.presence.made(given[operand.name])
        placement = Placement(self._own_names(fragment), bound)
        if loses:
            self.lost_uniform.append(placement)
        self.placed.add(fragment.call)
        self.emit(placement)
        return outputs[0] if len(outputs) == 1 else tuple(outputs) or None

    # -- parameters ---------------------------------------------------------------------------------------------------

    def parameter(self, name: str, type_: RegisterType, value: Callable[[Any], Any] | None = None) -> Value:
        """Declare a scalar kernel parameter and load it; `value` says what it is in a launch, given the call.

        Parameters
        ----------
        name
            Of the parameter.
        type_
            ``U32``, ``S32``, ``U64`` or ``F32`` for a number, ``GMEM`` for an address, ``B32`` or ``B16`` for bits.
        value
            What it is: a whole number in the type's bounds, for ``F32`` any number, for bits those of a whole number of
            0 and above.

        Raises
        ------
        TraceError
            ``TK-PART-001`` for another type, ``TK-FIT-001`` for a `value` that takes no call.
        """
        nearest = f"w.tensor_map({name!r}, lambda call: ...)" if type_ is MAP else None
        types = {each.name: each for each in PARAMETER_TYPES}
        require_register_type(f"w.parameter({name!r})", "type_", type_, types, nearest)
        if value is not None:
            require_call(f"w.parameter({name!r})", "value", value, "call")
        return self._declare(Parameter(name, type_, value))

    def tensor_map(self, name: str, value: Callable[[Any], Any] | None = None) -> Value:
        """Declare a tensor map parameter and return its generic address; `value` describes it, given the call."""
        return self._declare(Parameter(name, MAP, value))

    def uses(
        self,
        component: object,
        argument: str,
        array: str,
        *,
        dtype: Element | None = None,
        along: Along | None = None,
        contiguous: Literal["k", "mn"] | None = None,
    ) -> None:
        """Say what a component does with an array of the call; the arguments are those of a `Use`.

        Raises
        ------
        TraceError
            ``TK-COMP-009`` where the kernel declares the array otherwise.
        """
        if self._uses is not None:
            self._uses(Use(type(component).__name__, argument, array, dtype, along, contiguous))

    # -- small expressions --------------------------------------------------------------------------------------------

    def select(self, condition: Value, if_true: Operand, if_false: Operand, type_: RegisterType = U32) -> Value:
        """``condition ? if_true : if_false`` without a branch; both are of `type_`."""
        require_register_type("w.select", "type_", type_)
        for given in (if_true, if_false):
            if isinstance(given, Value) and not given.type.shares_registers(type_):
                name = given.type.name.upper()
                raise TraceError(
                    f"w.select() of {with_article(type_)} is given {given!r}; its fourth argument is the type of both: "
                    f"w.select(condition, if_true, if_false, registers.{name})",
                    code="TK-TRACE-005",
                )
        result = self.new(type_, "sel", uniform=all_uniform(condition, if_true, if_false))
        choices = self.operand(if_true, type_), self.operand(if_false, type_)
        self.emit(Operation("select", type_, result, (*choices, self.operand(condition, PRED))))
        return result

    def minimum(self, a: Value, b: Operand) -> Value:
        """The smaller of two numbers of one type."""
        if not isinstance(a, Value):
            raise illegal("w.minimum", "a", a, "a device value; the other may be a number")
        a.require(a.type.is_number, "order")
        return self.operate("min", a.type, a.type, a, b)

    def widen_multiply(self, a: Value, b: Operand) -> Value:
        """The 64-bit product of two 32-bit unsigned integers."""
        result = self.new(U64, "wide", uniform=all_uniform(a, b))
        self.emit(Operation("widen", U32, result, (self.operand(a, U32), self.operand(b, U32))))
        return result

    @property
    def reaches_memory(self) -> bool:
        """Whether anything traced so far may: arithmetic and control of tilekit's own do not."""
        return any(
            isinstance(line.statement, str)
            or (isinstance(line.statement, Placement) and not line.statement.fragment.stays_in_registers)
            for line in self._root.lines()
        )

    # -- the finished text --------------------------------------------------------------------------------------------

    def text(self) -> str:
        """Return the finished module.

        Raises
        ------
        TraceError
            ``TK-TRACE-007`` if a device loop or branch is still open: a ``break``, ``return`` or exception left it;
            ``TK-TRACE-020`` for an aligned fragment where lanes diverge from a loop's second round on.
        """
        self.require_closed()
        self.shared.require_fits(self.name, self.target.shared_bytes)
        check_loops(list(self._root.lines()), self.lost_uniform, self.broadcasts)
        trace = Trace(
            name=self.name,
            target=self.target,
            threads=self.threads,
            cluster=self.cluster,
            resident=self.resident,
            registers=entry_registers(self.target, self.threads, self.roles),
            parameters=tuple(self.parameters),
            roles=tuple(self.roles),
            shared=self.shared,
            body=self._root,
        )
        return self.dialect.module(trace)

    # -- helpers -------------------------------------------------------------------------------------------------------

    def _own_names(self, fragment: Fragment) -> Fragment:
        """The fragment with names for its locals that no register of the kernel has."""
        if fragment.locals <= self._reserved:
            return fragment
        known = self._hygienic.get(fragment)
        if known is None:
            names = {name: self._names.new(name) for name in sorted(fragment.locals - self._reserved)}
            known = self._hygienic[fragment] = fragment.with_locals(names, self.dialect)
        return known

    def _check_placement(self, fragment: Fragment) -> None:
        if not fragment.runs_on(self.target):
            raise fragment.error(
                f"needs {fragment.lacks(self.target)}; this kernel is for {self.target.name}, and {origin()} places it",
                "TK-FRAG-003",
            )
        if self._role and fragment.kind not in self._role.may | {"scalar", "control"}:
            raise fragment.error(
                f"is a {fragment.kind!r} fragment ({KINDS[fragment.kind]}); role {self._role.name!r} may only use "
                f"{', '.join(sorted(self._role.may | {'scalar', 'control'}))}; {origin()} places it",
                "TK-ROLE-001",
            )
        if fragment.aligned and self.divergent:
            raise fragment.error("must be executed by whole warps, but lanes may have diverged here", "TK-FRAG-004")

    def _declare(self, parameter: Parameter) -> Value:
        require_symbol("Writer.parameter", "name", parameter.name)
        if parameter.name in self._declared:
            raise TraceError(
                f"kernel parameter {parameter.name!r} is declared twice: by {self._declared[parameter.name]} and by "
                f"{origin()}",
                code="TK-TRACE-009",
            )
        self._declared[parameter.name] = origin()
        self.parameters.append(parameter)
        register = self.new(parameter.type, parameter.name, uniform=True)
        self.emit(LoadParameter(parameter, register))
        return register

    def _output(self, operand: FragmentOperand, *, uniform: bool) -> Value | RegisterTile:
        if operand.length is None:
            return self.new(operand.type, operand.name, uniform=uniform)
        return self.tile(operand.type, operand.length, operand.name)


def _registers(given: object) -> Iterable[Value]:
    """The registers of an operand."""
    if isinstance(given, Value):
        return (given,)
    return given if isinstance(given, RegisterTile) else ()
