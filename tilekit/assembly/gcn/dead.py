"""Definitions that nothing reads: which instructions have no effect but their results, and which results are read.

Lanes need no care here: a write under a narrowed EXEC is never taken for the end of an earlier value.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tilekit.assembly.gcn.code import Branch, Code, Instruction, Item
from tilekit.assembly.gcn.flow import Words, blocks_of
from tilekit.assembly.gcn.operands import clobbers_scc

__all__ = ["SCC", "VCC", "flags_read_later", "without_dead"]

SCC, VCC = 1, 2
"""Bits of the flags that are followed."""

_READS_SCC = ("s_addc", "s_subb", "s_cselect", "s_cmov")
_SCALAR = (
    "s_mov_b", "s_add_", "s_sub_", "s_addc", "s_subb", "s_mul_", "s_lshl", "s_lshr", "s_ashr", "s_and_b", "s_or_b",
    "s_xor_b", "s_andn", "s_orn", "s_not_b", "s_min_", "s_max_", "s_cselect", "s_cmp_", "s_bfe", "s_bfm", "s_bcnt",
    "s_ff1", "s_flbit", "s_sext", "s_brev", "s_pack", "s_load_dword",
)  # fmt: skip
_VECTOR_EFFECTS = ("v_cmpx", "v_nop", "v_swap", "v_permlane", "v_mfma", "v_smfmac")
"""What does more than to write its first operand. A matrix product is kept: it is what a kernel is for."""


@lru_cache(8192)
def _flags(text: str) -> tuple[int, int, int, bool]:
    """The flags that an instruction reads, may write and surely writes, and whether its results are its one effect."""
    name, _, rest = text.partition(" ")
    fields = rest.split(", ", 2)
    reads = SCC if name.startswith(_READS_SCC) else 0
    writes = ends = SCC if clobbers_scc(text) else 0
    if "vcc" in text or name.startswith("v_div_fmas"):
        target = fields[1:2] if name.startswith(("v_mad_u64", "v_mad_i64", "v_add_co", "v_sub_co")) else fields[:1]
        writes |= VCC
        if target == ["vcc"] and rest.count("vcc") == 1:
            ends |= VCC
        else:
            reads |= VCC
    results = name.startswith("s_cmp_") or fields[0] == "vcc" or fields[0].startswith("{")
    pure = name.startswith(_SCALAR) or (name.startswith("v_") and not name.startswith(_VECTOR_EFFECTS))
    return reads, writes, ends, pure and results and "saveexec" not in name


@dataclass(frozen=True, slots=True)
class _Effect:
    """Words and flags that an item reads and writes, those whose earlier values it ends, and whether it may go."""

    reads: int
    writes: int
    ends: int
    pure: bool


class _Needed:
    """What is read later, words and flags; backward over the control flow."""

    def __init__(self, code: Code) -> None:
        self.code = code
        self.blocks = blocks_of(code)
        self.words = Words(code)
        self.shift = self.words.every.bit_length()
        self.leaving = [0] * len(self.blocks)
        self.effects = [self._effect(item) for item in code.items]
        stale = set(range(len(self.blocks)))
        while stale:
            number = max(stale)
            stale.remove(number)
            block, needed = self.blocks[number], self.leaving[number]
            for effect in reversed(self.effects[block.start : block.end]):
                needed = _before(effect, needed)
            for predecessor in block.predecessors:
                if needed & ~self.leaving[predecessor]:
                    self.leaving[predecessor] |= needed
                    stale.add(predecessor)

    def _effect(self, item: Item) -> _Effect | None:
        if isinstance(item, Branch):
            condition = item.condition or ""
            flags = SCC if condition.startswith("scc") else VCC if condition.startswith("vcc") else 0
            return _Effect(flags << self.shift, 0, 0, False)
        if not isinstance(item, Instruction):
            return None
        reads, writes, ends, pure = _flags(item.text)
        pure = pure and item.clobbers <= {"scc", "vcc"} and not item.waits
        whole = [part for part in item.writes if not item.partial or part.register.file == "scalar"]
        return _Effect(
            self.words.of(item.reads) | reads << self.shift,
            self.words.of(item.writes) | writes << self.shift,
            self.words.of(whole) | ends << self.shift,
            pure,
        )


def _before(effect: _Effect | None, needed: int) -> int:
    """What is needed before an item, given what is behind it."""
    if effect is None or _is_dead(effect, needed):
        return needed
    return needed & ~effect.ends | effect.reads


def _is_dead(effect: _Effect, needed: int) -> bool:
    return effect.pure and not effect.writes & needed


def without_dead(code: Code) -> Code:
    """Return a kernel without the instructions whose results nothing reads and that do nothing else."""
    found = _Needed(code)
    kept: list[Item] = []
    for number in range(len(found.blocks) - 1, -1, -1):
        block, needed = found.blocks[number], found.leaving[number]
        for index in range(block.end - 1, block.start - 1, -1):
            effect = found.effects[index]
            if effect is None or not _is_dead(effect, needed):
                kept.append(code.items[index])
            needed = _before(effect, needed)
    return Code(kept[::-1])


def flags_read_later(code: Code) -> list[int]:
    """Return, for each item, the flags that are read behind it before they are written again."""
    found = _Needed(code)
    later = [0] * len(code.items)
    for number, block in enumerate(found.blocks):
        needed = found.leaving[number]
        for index in range(block.end - 1, block.start - 1, -1):
            later[index] = needed >> found.shift
            needed = _before(found.effects[index], needed)
    return later
