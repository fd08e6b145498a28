"""Which ``.target`` and ``.version`` an instruction needs.

The rules say what ptxas 13 accepts, for targets from sm_80 on; what the table of forms has and no rule speaks of is
accepted everywhere. Targets before sm_80 count as sm_80, and what PTX had before 7.0 as always there.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from tilekit.emulator.core.errors import PtxSyntaxError, nearest
from tilekit.emulator.ptx.language.syntax import Instruction, RegisterOperand, SpecialRegister

_FAMILIES = {100: 100, 103: 100, 101: 110, 110: 110, 120: 120, 121: 120}
"""Family of each target that has one: what ends in ``f`` runs on the members that are not older."""

_FIRST_VERSIONS = {
    "sm_80": "7.0", "sm_86": "7.1", "sm_87": "7.4", "sm_88": "9.0", "sm_89": "7.8", "sm_90": "7.8", "sm_90a": "8.0",
    "sm_100": "8.6", "sm_100a": "8.6", "sm_100f": "8.8", "sm_101": "8.6", "sm_101a": "8.6", "sm_101f": "8.8",
    "sm_103": "8.8", "sm_103a": "8.8", "sm_103f": "8.8", "sm_110": "9.0", "sm_110a": "9.0", "sm_110f": "9.0",
    "sm_120": "8.7", "sm_120a": "8.7", "sm_120f": "8.8", "sm_121": "8.8", "sm_121a": "8.8", "sm_121f": "8.8",
}  # fmt: skip
"""The ``.version`` that introduced each target (PTX ISA 11.1.2 and its release history)."""

_OLD_VERSIONS = {
    20: "2.0", 21: "2.0", 30: "3.0", 32: "4.0", 35: "3.1", 37: "4.1", 50: "4.0", 52: "4.1", 53: "4.2", 60: "5.0",
    61: "5.0", 62: "5.0", 70: "6.0", 72: "6.1", 75: "6.3",
}  # fmt: skip
"""The same of targets before sm_80."""

_LAST_MINORS = (-1, 5, 3, 2, 3, 1, 5, 8, 8, 5)
"""The last minor version of each major version (release history of the PTX ISA, as far as ptxas 13.5 knows it)."""


@dataclass(frozen=True, slots=True)
class Target:
    """A target such as ``sm_90a``: ``a`` binds the code to that chip, ``f`` to its family."""

    name: str
    number: int
    suffix: str

    @property
    def written(self) -> int:
        """The number as it is written, also before sm_80."""
        return int("".join(filter(str.isdigit, self.name)))

    @property
    def family(self) -> int:
        """The first chip of its family."""
        return _FAMILIES.get(self.number, self.number)

    def has(self, needed: Target) -> bool:
        """Whether code for this target may use what is there from ``needed`` on."""
        if needed.suffix == "a":
            return self.name == needed.name
        if needed.suffix == "f":
            return bool(self.suffix) and self.family == needed.family and self.number >= needed.number
        return self.number >= needed.number

    def runs(self, text: Target) -> bool:
        """Whether a chip of this name runs code for a target."""
        return self.name == text.name if text.suffix == "a" else self.has(text)


@lru_cache
def target(name: str) -> Target:
    """The target of a name.

    Raises
    ------
    ValueError
        When there is none.
    """
    match = re.fullmatch(r"sm_(\d\d\d?)([af]?)", name)
    if not match or ((int(match[1]) >= 80 or match[2]) and name not in _FIRST_VERSIONS):
        close = nearest(name, _FIRST_VERSIONS)
        raise ValueError(f"{name!r} is no target" + (f"; did you mean {close}?" if close else ""))
    return Target(name, max(int(match[1]), 80), match[2])


def _version(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)\.(\d+)", text)
    if not match:
        raise ValueError(f"{text!r} is no PTX version: write one such as 8.0")
    version = int(match[1]), int(match[2])
    if version[0] >= len(_LAST_MINORS) or version[1] > _LAST_MINORS[version[0]]:
        newest = f"{len(_LAST_MINORS) - 1}.{_LAST_MINORS[-1]}"
        raise ValueError(f"there is no .version {text}: the newest known is {newest}")
    return version


@dataclass(frozen=True, slots=True)
class Dialect:
    """What a text may use: its ``.version`` and its ``.target``, or another target in its place."""

    version: str
    target: Target

    def on(self, name: str) -> Dialect:
        """The dialect of the same text written for another target."""
        return Dialect(max(self.version, _FIRST_VERSIONS.get(name, "1.0"), key=_version), target(name))

    def lacks(self, instruction: Instruction) -> str:
        """Why an instruction may not be written; empty when it may."""
        if instruction.opcode in _SYNCHRONISED and "sync" not in instruction.modifiers and self.synchronises:
            return f"without .sync is not there any more: write {instruction.opcode}.sync and the mask of the lanes"
        for rule in _rules_of(instruction.opcode, instruction.modifiers):
            if (rule.where is None or rule.where(instruction)) and (problem := self._problem(rule.needs)):
                return problem
        for operand in instruction.operands:
            if isinstance(operand, SpecialRegister):
                needs = _SPECIAL.get(operand.name.partition(".")[0])
                if needs and (problem := self._problem(needs)):
                    return f"{operand.name} {problem}"
        return ""

    def lacks_one_of(self, needs: str) -> str:
        """What is missing of alternatives written ``sm_89 8.1, sm_90``; empty when one is met."""
        return self._problem(_needs(needs))

    @property
    def synchronises(self) -> bool:
        """Whether instructions of a warp must name the lanes that take part."""
        return self.numbers >= (6, 4) and self.target.written >= 70

    @property
    def numbers(self) -> tuple[int, int]:
        """The version as numbers."""
        return _version(self.version)

    def _problem(self, needs: tuple[tuple[Target, str], ...]) -> str:
        """What is missing when none of the alternatives is met."""
        fitting = [version for needed, version in needs if self.target.has(needed)]
        if not fitting:
            names = " or ".join(needed.name + ("" if needed.suffix else " or later") for needed, _ in needs)
            return f"needs {names}; the target is {self.target.name}"
        if not any(_version(version) <= _version(self.version) for version in fitting):
            return f"needs PTX {min(fitting, key=_version)}; the .version is {self.version}"
        return ""


@lru_cache
def dialect(version: str, name: str, line: int = 1) -> Dialect:
    """The dialect of a module's ``.version`` and ``.target``.

    Parameters
    ----------
    version, name
        As the directives give them.
    line
        Where, for the message.

    Raises
    ------
    PtxSyntaxError
        When a directive is missing or malformed, or the version older than the target.
    """
    if not version or not name:
        raise PtxSyntaxError(f"the module has no .{'target' if version else 'version'} directive", line=line, column=1)
    try:
        found = Dialect(version, target(name))
        first = _FIRST_VERSIONS.get(name) or _OLD_VERSIONS.get(found.target.written, "1.0")
        if _version(version) < _version(first):
            raise ValueError(f".version {version} has no .target {name}: write .version {first} or later")
    except ValueError as error:
        raise PtxSyntaxError(str(error), line=line, column=1) from None
    return found


_SYNCHRONISED = ("shfl", "vote")

# -- rules -------------------------------------------------------------------------------------------------------------

Condition = Callable[[Instruction], bool]


@dataclass(frozen=True, slots=True)
class _Rule:
    """What the instructions need that have all of some modifiers.

    ``a|b`` among the modifiers is one of these, ``-a`` none of them; ``a*`` any that begins so, ``a$`` the last one.
    """

    opcodes: frozenset[str]
    modifiers: tuple[str, ...]
    needs: tuple[tuple[Target, str], ...]
    """Alternatives, each a target with the version from which that target has it."""
    where: Condition | None

    def matches(self, opcode: str, modifiers: tuple[str, ...]) -> bool:
        """Whether the rule speaks of an instruction, what it asks of operands aside."""
        if self.opcodes and opcode not in self.opcodes:
            return False
        for item in self.modifiers:
            found = any(_fits(choice, modifiers) for choice in item.removeprefix("-").split("|"))
            if found == item.startswith("-"):
                return False
        return True


def _fits(choice: str, modifiers: tuple[str, ...]) -> bool:
    if choice.endswith("*"):
        return any(modifier.startswith(choice[:-1]) for modifier in modifiers)
    if choice.endswith("$"):
        return modifiers[-1:] == (choice[:-1],)
    return choice in modifiers


def _needs(text: str) -> tuple[tuple[Target, str], ...]:
    """Alternatives written ``sm_89 8.1, sm_90``; a version alone is one from sm_80 on."""
    alternatives = []
    for item in text.split(", "):
        name, _, version = (item if item.startswith("sm_") else f"sm_80 {item}").partition(" ")
        alternatives.append((target(name), version or _FIRST_VERSIONS[name.rstrip("f")]))
    return tuple(alternatives)


def _rule(opcodes: str, modifiers: str, needs: str, where: Condition | None = None) -> _Rule:
    return _Rule(frozenset(opcodes.split()), tuple(modifiers.split()), _needs(needs), where)


def _is_predicate(operand: object) -> bool:
    return isinstance(operand, RegisterOperand) and operand.register.type == "pred"


_ANY = "sm_100f, sm_110f, sm_120f"
"""All chips from sm_100 on, in code bound to a chip or a family."""
_TENSOR = "sm_100f, sm_110f"
"""Those with tensor memory."""
_SMALL = "e2m1x2|e2m3x2|e3m2x2"
_RULES = (
    # state spaces, scopes, cache hints and types, whatever the instruction
    _rule("ld st atom red mbarrier cvta isspacep ldmatrix wmma", "shared::cta", "7.8"),
    _rule("cp", "mbarrier shared::cta", "7.8"),
    _rule("", "shared::cluster", "sm_90"),
    _rule("ld st atom red fence", "cluster", "sm_90"),
    _rule("ld st", "L1::*|L2::*", "7.4"),
    _rule("", "L2::cache_hint", "7.4"),
    _rule("", "param::entry|param::func", "8.3"),
    _rule("ld ldu st mov", "b128", "8.3"),
    # arithmetic
    _rule("add sub mul", "bf16|bf16x2 -f32", "sm_90"),
    _rule("add sub fma", "f32 f16|bf16", "sm_100"),
    _rule("add sub mul fma", "f32x2", "sm_100"),
    _rule("add min max", "u16x2|s16x2", "sm_90 8.0"),
    _rule("min max", "relu s32", "sm_90 8.0"),
    _rule("min max", "xorsign", "sm_86 7.2"),
    _rule("min max", "f32", "sm_100 8.8", lambda i: len(i.operands) == 4),
    _rule("fma", "oob", "sm_90 8.1"),
    _rule("set setp", "bf16|bf16x2", "sm_90"),
    _rule("ex2 tanh", "bf16|bf16x2", "sm_90"),
    _rule("bmsk szext", "", "7.6"),
    _rule("lop3", "and|or", "8.2"),
    # conversions
    _rule("cvt", "bf16 -f32", "sm_90"),
    _rule("cvt", "f32 bf16$", "7.1"),
    _rule("cvt", "f32 bf16$ ftz", "sm_90"),
    _rule("cvt", "tf32 rn|rz", "sm_90"),
    _rule("cvt", "satfinite f32 f16|bf16|f16x2|bf16x2|tf32 -rs", "8.1"),
    _rule("cvt", "satfinite tf32 rn|rz", "sm_100"),
    _rule("cvt", "e4m3x2|e5m2x2 f32|f16x2", "sm_89 8.1, sm_90"),
    _rule("cvt", f"{_SMALL}|ue8m0x2", _ANY),
    _rule("cvt", f"{_SMALL} f16x2$", "sm_100f 9.1, sm_110f 9.1, sm_120f 9.1"),
    _rule("cvt", f"{_SMALL}|e4m3x2|e5m2x2 bf16x2$", "sm_100f 9.1, sm_110f 9.1, sm_120f 9.1"),
    _rule("cvt", f"bf16x2 {_SMALL}|e4m3x2|e5m2x2 -bf16x2$", "sm_100f 9.2, sm_110f 9.2, sm_120f 9.2"),
    _rule("cvt", "rs", "sm_100a 8.7, sm_103a"),
    # memory
    _rule("ld st", "v8 b32|u32|s32|f32", "sm_100 8.8"),
    _rule("ld st", "v4 b64|u64|s64|f64", "sm_100 8.8"),
    _rule("ld st", "L2::evict_first|L2::evict_last|L2::evict_normal", "sm_100 8.8"),
    _rule("ld st", "volatile local", "9.1"),
    _rule("ld st", "mmio -async", "8.2"),
    _rule("atom red", "v2|v4|v8", "sm_90 8.1"),
    _rule("atom red", "bf16|bf16x2", "sm_90"),
    _rule("atom", "b128", "sm_90 8.3"),
    _rule("atom", "b128 sys", "sm_90 8.4"),
    _rule("cvta isspacep", "param", "7.7"),
    _rule("applypriority discard createpolicy", "", "7.4"),
    _rule("prefetch", "L2::*", "7.4"),
    _rule("prefetch", "tensormap", "sm_90 8.0"),
    _rule("alloca stacksave stackrestore", "", "7.3"),
    _rule("mapa getctarank", "", "sm_90"),
    _rule("st", "bulk", "sm_100"),
    _rule(
        "st",
        "bulk",
        "sm_100 9.0",
        lambda i: isinstance(i.operands[1], RegisterOperand) and i.operands[1].register.bits == 32,
    ),
    # asynchronous copies
    _rule("cp", "async L2::* -bulk", "7.4"),
    _rule("cp", "async -bulk", "7.5", lambda i: any(map(_is_predicate, i.operands))),
    _rule("cp", "bulk", "sm_90 8.0"),
    _rule("cp", "bulk shared::cta mbarrier::complete_tx::bytes -shared::cluster", "sm_90 8.6"),
    _rule("cp", "tile::gather4|im2col::w -shared::cta", _TENSOR),
    _rule("cp", "tile::gather4|im2col::w", "sm_100"),
    _rule("cp", "tile::scatter4|im2col::w::128|cta_group::1|cta_group::2", _TENSOR),
    _rule("cp", "cp_mask", "sm_100"),
    _rule("cp", "ignore_oob", "sm_90 9.2"),
    _rule("st red", "async", "sm_90 8.1"),
    _rule("st red", "async release", "sm_100 8.7"),
    _rule("st", "async b128", "sm_90 9.2"),
    _rule("tensormap", "replace", "sm_90a 8.3, sm_100f, sm_110f, sm_120f"),
    _rule("tensormap", "replace swizzle_atomicity", _ANY),
    _rule("tensormap", "cp_fenceproxy", "sm_90 8.3"),
    # synchronisation
    _rule("bar barrier", "cta", "7.8"),
    _rule("barrier", "cluster", "sm_90"),
    _rule("barrier", "cluster acquire|release|relaxed", "sm_90 8.0"),
    _rule("elect", "", "sm_90 8.0"),
    _rule("griddepcontrol", "", "sm_90"),
    _rule("fence", "acquire|release -proxy -mbarrier_init", "sm_90 8.6"),
    _rule("fence", "sync_restrict::shared::cta|sync_restrict::shared::cluster", "sm_90 8.6"),
    _rule("fence", "proxy tensormap::generic", "sm_90 8.3"),
    _rule("fence", "proxy alias", "7.5"),
    _rule("fence membar", "proxy async", "sm_90 8.0"),
    _rule("fence", "mbarrier_init", "sm_90 8.0"),
    _rule("membar", "proxy alias", "7.5"),
    _rule("mbarrier", "try_wait", "sm_90"),
    _rule("mbarrier", "expect_tx|complete_tx", "sm_90 8.0"),
    _rule("mbarrier", "acquire|release", "8.0"),
    _rule("mbarrier", "relaxed -expect_tx|complete_tx", "sm_90 8.6"),
    _rule("mbarrier", "relaxed arrive|arrive_drop", "sm_90 8.6"),
    _rule("mbarrier", "cluster|shared::cluster", "sm_90 8.0"),
    _rule("mbarrier", "arrive|arrive_drop -noComplete", "sm_90", lambda i: len(i.operands) == 3),
    _rule("clusterlaunchcontrol", "", "sm_100"),
    _rule("clusterlaunchcontrol", "multicast::cluster::all", _ANY),
    _rule("setmaxnreg", "", "sm_90a, sm_100f, sm_110f, sm_120f"),
    _rule("redux", "f32", "sm_100f"),
    # matrices
    _rule("movmatrix", "", "7.8"),
    _rule("stmatrix", "", "sm_90"),
    _rule("ldmatrix stmatrix", "b8|b8x16", _ANY),
    _rule("wmma mma", "and popc", "7.1"),
    _rule("mma", "sp", "7.1"),
    _rule("mma", "sp::ordered_metadata", "8.5"),
    _rule("mma", "f64 -m8n8k4", "sm_90"),
    _rule("mma", "e4m3|e5m2", "sm_89 8.4, sm_90 8.4"),
    _rule("mma", "e4m3|e5m2 m16n8k16", "sm_89 8.7, sm_90 8.7"),
    _rule("mma", "e4m3|e5m2 f16 -sp -sp::ordered_metadata", "sm_89 8.7, sm_90 8.7"),
    _rule("mma", "e4m3|e5m2 f16 sp|sp::ordered_metadata", "sm_120a"),
    _rule("wgmma", "", "sm_90a"),
    _rule("wgmma", "sp", "sm_90a 8.2"),
    _rule("wgmma", "mma_async s8 u8", "sm_90a 8.4"),
    _rule("tcgen05", "", _TENSOR),
    _rule("tcgen05", "kind::i8", "sm_100a, sm_110a"),
    _rule("tcgen05", "shift", "sm_100a, sm_103a, sm_110a"),
    _rule("tcgen05", "scale_vec::1X|scale_vec::2X|scale_vec::4X", "sm_100a, sm_103a, sm_110a"),
    _rule("tcgen05", "sp kind::mxf4|kind::mxf4nvf4", "sm_100a, sm_103a, sm_110a"),
    _rule("tcgen05", "kind::mxf4nvf4", "sm_100f 8.7, sm_110f 8.7"),
    _rule("tcgen05", "block16|block32", "sm_100f 8.8, sm_110f 8.8"),
)
_SPECIAL = {
    **dict.fromkeys(
        ("%clusterid", "%nclusterid", "%is_explicit_cluster", "%cluster_ctaid", "%cluster_nctaid",
         "%cluster_ctarank", "%cluster_nctarank"), _needs("sm_90")),
    "%aggr_smem_size": _needs("sm_90 8.1"),
    "%current_graph_exec": _needs("8.0"),
    **dict.fromkeys(
        (f"%reserved_smem_offset_{n}" for n in ("begin", "end", "cap", "0", "1")), _needs("7.6")),
}  # fmt: skip
"""What special registers need, by name without ``.x``."""


@lru_cache(4096)
def _rules_of(opcode: str, modifiers: tuple[str, ...]) -> tuple[_Rule, ...]:
    """The rules that speak of an instruction's name."""
    return tuple(rule for rule in _RULES if rule.matches(opcode, modifiers))
