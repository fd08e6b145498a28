"""What is wrong with a PTX text without running it: `lint`.

Every rule is one that a correct kernel cannot break, as far as its text shows; where a path or an address decides, a
rule keeps silent. Running a kernel finds far more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tilekit.emulator.core.errors import EmulatorError, PtxSyntaxError, UnsupportedInstruction, describe
from tilekit.emulator.core.remarks import Remark
from tilekit.emulator.ptx.compiler.control_flow import ControlFlow, build_control_flow
from tilekit.emulator.ptx.compiler.inlining import inline_calls
from tilekit.emulator.ptx.compiler.unwritten import unwritten_reads
from tilekit.emulator.ptx.language.availability import Dialect, dialect
from tilekit.emulator.ptx.language.forms import Decoded, decode
from tilekit.emulator.ptx.language.module_rules import module_problems
from tilekit.emulator.ptx.language.parser import parse_all
from tilekit.emulator.ptx.language.syntax import Function, LabelOperand, VectorOperand
from tilekit.emulator.ptx.lint.flow import divergent_aligned, missing_proxy_fences
from tilekit.emulator.ptx.ops import table  # noqa: F401 (registers the instruction forms)
from tilekit.emulator.ptx.ops.atomic import PACKED_HALVES, PACKED_HALVES_HINT

__all__ = ["RULES", "lint"]

RULES = {
    "syntax": "the text cannot be parsed",
    "unsupported": "an instruction that the chip does not have, or the emulator does not execute",
    "setmaxnreg": "the register count at entry is unknown, so ptxas ignores setmaxnreg",
    "unused-register": "a register that is declared by name and never used",
    "unused-label": "a label that nothing branches to",
    "uninitialised": "a register that is read and that nothing on any path before has written",
    "cluster-barrier": "barrier.cluster.arrive without a wait, or a wait without an arrive",
    "wgmma": "wgmma without wgmma.fence, commit_group or wait_group anywhere in the kernel",
    "tcgen05": "tcgen05.alloc, mma, ld or st without what belongs to it anywhere in the kernel",
    "proxy-fence": "shared memory written by st or stmatrix, and no fence.proxy.async before the async proxy reads it",
    "mbarrier-init": "mbarriers are used, and none is initialised",
    "bulk-group": "bulk stores, or cp.async, that nothing commits or waits for",
    "packed-halves": "atom or red .shared::cluster.add of f16x2 or bf16x2, which ptxas compiles to an integer addition",
    "aligned": "an .aligned instruction under a predicate that differs between the lanes of a warp",
}
"""Every rule, and what breaks it."""


def lint(text: str, target: str | None = None) -> list[Remark]:
    """Check a text.

    Parameters
    ----------
    text
        PTX.
    target
        Target whose instructions are allowed; None for the text's ``.target``.

    Returns
    -------
    list of Remark
        By line; empty when nothing is wrong.
    """
    errors: list[PtxSyntaxError] = []
    try:
        module, errors = parse_all(text)
        written_in = dialect(module.version, module.target, module.header_line)
    except PtxSyntaxError as error:
        return sorted(map(_syntax, (*errors, error)), key=lambda remark: remark.line)
    spoken = written_in if target is None else written_in.on(target)
    found: dict[tuple[str, int, str], Remark] = {}
    for problem in (*errors, *module_problems(module, written_in)):
        found.setdefault(("syntax", problem.line or 1, problem.message), _syntax(problem))
    for entry in module.functions.values():
        if not entry.is_entry or not entry.has_body:
            continue
        try:
            function = inline_calls(entry, module)
        except EmulatorError as error:
            if errors:
                continue  # which may be why
            remarks = [Remark("unsupported", entry.name, error.line or entry.line, error.message, error.hint)]
        else:
            remarks = list(_check(function, entry, spoken, whole=not errors))
        for remark in remarks:  # code inlined twice is wrong once
            found.setdefault((remark.rule, remark.line, remark.message), remark)
    return sorted(found.values(), key=lambda remark: (remark.line, remark.rule))


def _syntax(error: PtxSyntaxError) -> Remark:
    return Remark("syntax", "", error.line or 1, error.message, error.hint)


def _check(function: Function, written: Function, spoken: Dialect, *, whole: bool) -> Iterator[Remark]:
    """Remarks on one kernel; ``written``: before its calls were inlined, ``whole``: all of it could be read."""
    code: list[Decoded] = []
    complete = whole
    for position, instruction in enumerate(function.instructions):
        if not whole and any(isinstance(o, LabelOperand) and o.position < 0 for o in instruction.operands):
            continue  # a name that stands for nothing, of which the parser has spoken
        try:
            code.append(decode(instruction, position, spoken))
        except UnsupportedInstruction as error:
            complete = False
            yield Remark("unsupported", function.name, instruction.line, error.message, error.hint)
    if not complete or not code:
        return  # what it would do is unknown, and with it everything that follows

    def remark(rule: str, at: Decoded, message: str, hint: str) -> Remark:
        shown = describe(at.instruction).partition(": ")[2]
        return Remark(rule, function.name, at.instruction.line, f"{message}: {shown}", hint)

    flow = build_control_flow(code, function.procedures)
    for rule in _RULES:
        for at, message, hint in rule(code, flow, function):
            yield remark(_NAMES[rule], at, message, hint)
    yield from _unused(function, written, code)


_COMPILERS_OWN = ("%SP", "%SPL", "temp_param_reg")
"""Registers that nvcc declares whether it needs them or not."""

Complaint = tuple[Decoded, str, str]
Rule = Callable[[Sequence[Decoded], ControlFlow, Function], Iterator[Complaint]]


def _is(decoded: Decoded, opcode: str, **fields: str) -> bool:
    return decoded.form.opcode == opcode and all(decoded.get(name) == value for name, value in fields.items())


def _setmaxnreg(code: Sequence[Decoded], flow: ControlFlow, function: Function) -> Iterator[Complaint]:
    directives = function.directives
    threads = "maxntid" in directives or "reqntid" in directives
    if "maxnreg" in directives or "reqntid" in directives or (threads and "minnctapersm" in directives):
        return
    for decoded in code:
        if decoded.form.opcode == "setmaxnreg":
            yield (
                decoded,
                "ptxas does not know the register count at entry and ignores it",
                "add .maxntid and .minnctapersm 1 (or .reqntid, or .maxnreg) to the entry",
            )
            return


def _cluster_barrier(code: Sequence[Decoded], flow: ControlFlow, function: Function) -> Iterator[Complaint]:
    arrives = [d for d in code if _is(d, "barrier", level="cluster", op="arrive")]
    waits = [d for d in code if _is(d, "barrier", level="cluster", op="wait")]
    if arrives and not waits:
        yield arrives[0], "no barrier.cluster.wait in this kernel", "every thread alternates arrive and wait"
    if waits and not arrives:
        yield waits[0], "no barrier.cluster.arrive in this kernel", "every thread alternates arrive and wait"


def _wgmma(code: Sequence[Decoded], flow: ControlFlow, function: Function) -> Iterator[Complaint]:
    products = [d for d in code if _is(d, "wgmma", op="mma_async")]
    if not products:
        return
    for operation, why in (
        ("fence", "before the first wgmma of a batch, and after ordinary writes of its registers"),
        ("commit_group", "after a batch"),
        ("wait_group", "before its accumulators are used"),
    ):
        if not any(_is(d, "wgmma", op=operation) for d in code):
            yield products[0], f"no wgmma.{operation} in this kernel", f"wgmma.{operation}.sync.aligned belongs {why}"


_TENSOR = (
    ("alloc", "dealloc", "every allocation is given back before the CTA ends"),
    (
        "alloc",
        "relinquish_alloc_permit",
        "give the permit up behind the last allocation: until then no other CTA of the multiprocessor, of this kernel "
        "or of the next, can allocate",
    ),
    ("mma", "commit", "nothing else says when products are complete and operands have been read"),
    ("ld", "wait::ld", "registers of a load hold nothing before it"),
    ("st", "wait::st", "no other warp may read what is stored before it"),
)
"""What needs what, and why."""


def _tcgen05(code: Sequence[Decoded], flow: ControlFlow, function: Function) -> Iterator[Complaint]:
    first: dict[str, Decoded] = {}
    for decoded in code:
        if decoded.form.opcode == "tcgen05":
            first.setdefault(decoded["op"], decoded)
    for operation, other, why in _TENSOR:
        if operation in first and other not in first:
            yield first[operation], f"no tcgen05.{other} in this kernel", why


def _mbarrier_init(code: Sequence[Decoded], flow: ControlFlow, function: Function) -> Iterator[Complaint]:
    if any(_is(d, "mbarrier", op="init") for d in code):
        return
    for decoded in code:
        if decoded.form.opcode == "mbarrier" or decoded.get("complete").startswith("mbarrier"):
            yield (
                decoded,
                "an mbarrier is used, and no mbarrier.init is in this kernel",
                "let one thread execute mbarrier.init, then fence.mbarrier_init, and meet at a barrier",
            )
            return


def _bulk_group(code: Sequence[Decoded], flow: ControlFlow, function: Function) -> Iterator[Complaint]:
    stores = [d for d in code if d.get("complete") == "bulk_group"]
    waits = any(d.has("bulk") and d.has("wait_group") for d in code)
    if stores and not any(d.has("bulk") and d.has("commit_group") for d in code):
        yield stores[0], "no cp.async.bulk.commit_group in this kernel", "close the group after the last store of it"
    elif stores and not waits:
        hint = "end with cp.async.bulk.wait_group.read 0 at the least: shared memory must live until it has been read"
        yield stores[0], "no cp.async.bulk.wait_group in this kernel", hint
    copies = [d for d in code if _is(d, "cp") and d.has("dst") and d.has("level") and not d.has("bulk")]
    ends = any(_is(d, "cp") and not d.has("bulk") and (d.has("wait_group") or d.has("wait_all") or d.has("object"))
               for d in code)  # fmt: skip
    if copies and not ends:
        hint = "wait with cp.async.wait_group or wait_all, or arrive with cp.async.mbarrier.arrive"
        yield copies[0], "nothing in this kernel waits for cp.async", hint


def _uninitialised(code: Sequence[Decoded], flow: ControlFlow, function: Function) -> Iterator[Complaint]:
    told: set[int] = set()
    for read in unwritten_reads(code, flow, len(function.registers)):
        if read.certain and read.register.number not in told:
            told.add(read.register.number)
            message = f"{read.register.name} is read before anything writes it"
            yield read.decoded, message, "every path to here leaves it undefined"


def _proxy_fence(code: Sequence[Decoded], flow: ControlFlow, function: Function) -> Iterator[Complaint]:
    for decoded, store in missing_proxy_fences(code, flow):
        yield (
            decoded,
            f"no fence.proxy.async since the store to shared memory in line {store.instruction.line}",
            "every warp that writes executes fence.proxy.async.shared::cta before the barrier that hands the data over",
        )


def _packed_halves(code: Sequence[Decoded], flow: ControlFlow, function: Function) -> Iterator[Complaint]:
    for decoded in code:
        adds = decoded.form.opcode in ("atom", "red") and decoded.get("op") == "add"
        if adds and decoded["type"] in PACKED_HALVES and decoded.get("space") == "shared::cluster":
            yield (
                decoded,
                "in a peer's shared memory ptxas adds these words as integers, and not atomically",
                PACKED_HALVES_HINT,
            )


def _aligned(code: Sequence[Decoded], flow: ControlFlow, function: Function) -> Iterator[Complaint]:
    for decoded, why in divergent_aligned(code):
        hint = "all lanes of the warp must execute it together: branch on a condition that the whole warp shares"
        yield decoded, f"{why}, which differs between the lanes of a warp", hint


_NAMES: dict[Rule, str] = {
    _setmaxnreg: "setmaxnreg",
    _cluster_barrier: "cluster-barrier",
    _wgmma: "wgmma",
    _tcgen05: "tcgen05",
    _mbarrier_init: "mbarrier-init",
    _bulk_group: "bulk-group",
    _uninitialised: "uninitialised",
    _proxy_fence: "proxy-fence",
    _packed_halves: "packed-halves",
    _aligned: "aligned",
}
_RULES = tuple(_NAMES)


def _unused(function: Function, written: Function, code: Sequence[Decoded]) -> Iterator[Remark]:
    """Names that stand for nothing; compilers' own (``$L__…``, ranges such as ``%r<9>``) are left alone."""
    used = {register.number for decoded in code for register in (*decoded.defs, *decoded.uses)}
    unused: dict[str, bool] = {}  # by name; a vector is used where one of its components is
    for register in written.registers:
        name = register.name.partition(".")[0]
        unused[name] = unused.get(name, True) and register.number not in used
    for name in (name for name, alone in unused.items() if alone and name not in _COMPILERS_OWN):
        # A declaration has no place of its own in what the parser keeps: the kernel's stands for it.
        yield Remark("unused-register", function.name, function.line, f"register {name} is never used")
    targets = {label.name for decoded in code for label in _labels(decoded)}
    for line, name in written.labels:
        if name not in targets and not name.startswith("$"):
            yield Remark("unused-label", function.name, line, f"nothing branches to {name}")


def _labels(decoded: Decoded) -> Iterator[LabelOperand]:
    for operand in decoded.operands:
        for item in operand.items if isinstance(operand, VectorOperand) else (operand,):
            if isinstance(item, LabelOperand):
                yield item
