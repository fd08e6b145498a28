"""From a trace to code: control flow, parameters, operations and fragments, with registers that have no place yet."""

from __future__ import annotations

from tilekit.assembly.gcn import arithmetic
from tilekit.assembly.gcn.abi import KernelAbi
from tilekit.assembly.gcn.builder import Builder
from tilekit.assembly.gcn.code import Branch, Code, Label, Part
from tilekit.assembly.gcn.lines import effects_of
from tilekit.assembly.gcn.placement import Placer
from tilekit.assembly.gcn.uniformity import Uniformity
from tilekit.assembly.trace import (
    EndIf,
    EndLoop,
    If,
    Line,
    LoadParameter,
    Loop,
    Operation,
    Placement,
    SharedBase,
    Trace,
)
from tilekit.assembly.types import PRED
from tilekit.assembly.values import Value

SIMDS = 4
"""Of a compute unit: the waves of a CTA are dealt to them."""


def waves_per_simd(trace: Trace) -> int:
    """Waves that share a SIMD's registers when as many CTAs are resident as the trace asks for."""
    waves = -(-trace.threads // trace.target.lanes) * trace.resident
    return max(1, -(-waves // SIMDS))


def lower(trace: Trace) -> tuple[Code, KernelAbi]:
    """Return a kernel's instructions, and what it is handed.

    Raises
    ------
    FragmentError
        ``TK-FRAG-006`` for an operand that must be one for the whole wave and is not.
    TraceError
        ``TK-TARGET-003`` for a parameter that the chip has nothing for.
    """
    abi = KernelAbi(trace)
    # One wave of a SIMD can name 256 VGPRs and has 512 registers; with more waves, accumulator registers add nothing.
    uniformity = Uniformity(trace.body, accumulators=waves_per_simd(trace) == 1)
    lowering = _Lowering(uniformity, abi)
    lowering.run(list(trace.body.lines()))
    return lowering.build.code, abi


class _Lowering:
    """One kernel as it is gone through."""

    def __init__(self, uniformity: Uniformity, abi: KernelAbi) -> None:
        self.build = Builder(uniformity)
        self._uniformity = uniformity
        self._abi = abi
        self._placer = Placer(self.build, abi)
        self._saved: dict[int, Part] = {}
        self._conditions: dict[str, Operation] = {}
        self._parted: list[bool] = []

    def run(self, lines: list[Line]) -> None:
        """Go through the kernel, and end it."""
        for line, following in zip(lines, [*lines[1:], None], strict=True):
            self.build.begin(line)
            self._statement(line, following)
        self.build.put("s_endpgm", targets=0)

    def _statement(self, line: Line, following: Line | None) -> None:
        match line.statement:
            case Operation() as operation:
                if self._goes_with(operation, following):
                    self._conditions[operation.result.text] = operation
                else:
                    arithmetic.spell(self.build, operation)
            case SharedBase():
                pass  # a constant
            case LoadParameter(parameter, result):
                self._load(self._abi.offsets[parameter.name], result)
            case If() as branch:
                self._open(branch)
            case EndIf(opened):
                self.build.item(Label(_label(opened.end)))
                self._restore(opened)
            case Loop(top) as loop:
                if self._enter(loop):
                    self.build.put("s_mov_b64", self._save(loop), "exec")
                self.build.item(Label(_label(top)))
            case EndLoop(opened, again):
                self._repeat(opened, again)
            case Placement() as placement:
                self._placer.place(line, placement)
            case str() as text:
                found = effects_of(text, (), str(line.origin), self._abi.chip)
                self.build.append(found.text, (), reads=(), writes=(), clobbers=found.clobbers, counter=found.counter)

    def _load(self, offset: int, result: Value) -> None:
        with self.build.result(result, "scalar") as words:
            target = Part(words[0].register, words[0].first, len(words))
            suffix = "" if len(words) == 1 else f"x{len(words)}"
            kernarg = self._abi.given("kernarg")
            self.build.put(f"s_load_dword{suffix}", target, kernarg, f"{offset:#x}", counter="lgkmcnt")

    # -- branches and loops -------------------------------------------------------------------------------------------

    def _goes_with(self, operation: Operation, following: Line | None) -> bool:
        """Whether a comparison of scalars is read by the branch behind it alone, so that SCC carries it there."""
        match following and following.statement:
            case If(condition) | EndLoop(_, condition):
                return (
                    condition.text == operation.result.text
                    and operation.type is not PRED
                    and condition.text not in self._uniformity.constants
                    and self._uniformity.is_scalar(condition)
                    and self._uniformity.used_once(condition)
                )
        return False

    def _scc(self, condition: Value) -> bool:
        """Put a uniform condition into SCC; returns what SCC is where it holds."""
        compared = self._conditions.pop(condition.text, None)
        if compared is not None:
            return arithmetic.scalar_condition(self.build, compared)
        mask = self.build.mask(condition)
        if self._uniformity.is_scalar(condition):
            self.build.put("s_cmp_lg_u64", mask, 0, targets=0)
        else:  # bits of lanes that are not active say nothing
            self.build.scalar("s_and_b64", "vcc", mask, "exec")
        return True

    def _open(self, branch: If) -> None:
        condition, end = branch.condition, _label(branch.end)
        if not self._uniformity.parts(branch):
            held = self._scc(condition) == branch.holds
            self.build.item(Branch(end, "scc0" if held else "scc1", self.build.origin))
            self._enter(branch)
            return
        saving = "s_and_saveexec_b64" if branch.holds else "s_andn1_saveexec_b64"
        self.build.put(saving, self._save(branch), self.build.mask(condition), lanes="fewer")
        self.build.item(Branch(end, "execz", self.build.origin))
        self._enter(branch)

    def _repeat(self, loop: Loop, again: Value) -> None:
        top = _label(loop.top)
        if self._uniformity.parts(loop):
            self.build.put("s_and_b64", "exec", "exec", self.build.mask(again), lanes="fewer")
            self.build.item(Branch(top, "execnz", self.build.origin))
        else:
            self.build.item(Branch(top, "scc1" if self._scc(again) else "scc0", self.build.origin))
        self._restore(loop)

    def _enter(self, construct: If | Loop) -> bool:
        """Begin a branch or loop; returns whether lanes may part there."""
        self._parted.append(self._uniformity.parts(construct))
        self.build.parted = any(self._parted)
        return self._parted[-1]

    def _save(self, construct: If | Loop) -> Part:
        """Where the lanes are kept that come out of a branch or loop."""
        return self._saved.setdefault(id(construct), self.build.temporary("scalar", 2, "lanes"))

    def _restore(self, construct: If | Loop) -> None:
        """End a branch or loop."""
        if self._parted.pop():
            self.build.put("s_mov_b64", "exec", self._save(construct), lanes="more")
        self.build.parted = any(self._parted)


def _label(name: str) -> str:
    return f".L{name}"
