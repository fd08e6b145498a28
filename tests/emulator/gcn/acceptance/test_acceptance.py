"""The emulator takes what LLVM's assembler takes, and refuses what it refuses: damaged instructions and descriptors."""

from __future__ import annotations

import random

import pytest

from tests.emulator.gcn.acceptance.__main__ import CHIPS, drawn
from tests.emulator.gcn.acceptance.damage import damaged, joined, parts
from tests.emulator.gcn.acceptance.descriptors import assembler_refuses, damaged_text
from tests.emulator.gcn.acceptance.sources import instructions
from tests.emulator.gcn.acceptance.verdicts import DEFECT, compare, text_refused

TEXTS = 1500
MOST = 0.01
"""The share of texts on which the two may differ otherwise than on purpose."""


@pytest.mark.parametrize("chip", CHIPS)
def test_damaged_instructions(chip: str) -> None:
    """A fresh seed: no crash, and fewer than one in a hundred on which the two do not agree."""
    seed = random.randrange(2**32)
    found = compare(drawn(chip, seed, TEXTS), chip)
    assert not [str(v) for v in found if v.by_emulator.startswith(DEFECT)], seed
    differing = [str(v) for v in found if v.differs]
    assert len(differing) < MOST * len(found), (seed, differing[:20])
    assert sum(bool(v.by_assembler) for v in found) > len(found) / 2


def test_damaged_descriptors() -> None:
    """No damage to a descriptor crashes, and few that the assembler refuses are taken."""
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    taken = []
    for _ in range(60):
        chip = rng.choice(CHIPS)
        kind, text = damaged_text(chip, rng)
        message, _ = text_refused(text, chip)
        assert not message.startswith(DEFECT), (seed, kind, message)
        said = assembler_refuses(text, chip)
        if said and not message:
            taken.append((kind, said))
    assert len(taken) <= 8, (seed, taken)


@pytest.mark.parametrize("chip", CHIPS)
def test_undamaged_instructions_are_taken(chip: str) -> None:
    """Both take every different instruction of the corpus."""
    found = compare([("none", line) for line in instructions(chip)], chip)
    assert not [str(v) for v in found if v.by_assembler or (v.by_emulator and not v.unsupported)]


def test_an_instruction_is_taken_apart_and_put_together() -> None:
    """Operands in brackets stay whole, and modifiers are told from the last operand."""
    line = "v_pk_mul_f32 v[2:3], v[4:5], s[6:7] op_sel_hi:[1,0] clamp"
    assert parts(line) == ("v_pk_mul_f32", ["v[2:3]", "v[4:5]", "s[6:7]"], "op_sel_hi:[1,0] clamp")
    assert joined(*parts(line)) == line
    rng = random.Random(3)
    assert len({damaged(line, rng, (line, "s_nop 0"))[1] for _ in range(200)}) > 50
