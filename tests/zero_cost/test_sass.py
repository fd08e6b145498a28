"""The reader of SASS: control flow, natural loops, and loops of a Blackwell kernel of another compiler."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilekit.runtime.assembler import assemble, disassemble

from .sass import Instruction, Program, histogram, read

TEXTS = Path(__file__).parents[1] / "emulator" / "ptx" / "corpus" / "ptx" / "triton"

NESTED = """\
.text.kernel:
        /*0000*/                   S2R R0, SR_TID.X ;                /* 0x000 */
.L_x_1:
        /*0010*/                   IADD3 R0, R0, 0x1, RZ ;           /* 0x000 */
.L_x_2:
        /*0020*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P1, [R3+URZ], R2 ;
        /*0030*/              @!P1 BRA `(.L_x_5) ;
.L_x_3:
        /*0040*/                   UTMALDG.2D [UR4], [UR8] ;
        /*0050*/                   BRA.U UP0, `(.L_x_2) ;
        /*0060*/              @!P0 BRA `(.L_x_1) ;
        /*0070*/                   EXIT ;
.L_x_5:
        /*0080*/              @!P1 NANOSLEEP.SYNCS 0x989680 ;
        /*0090*/              @!P1 BRA `(.L_x_5) ;
        /*00a0*/                   BRA `(.L_x_3) ;
.L_x_6:
        /*00b0*/                   BRA `(.L_x_6);
        /*00c0*/                   NOP;
"""


def opcodes(instructions: list[Instruction]) -> list[str]:
    """The opcodes alone."""
    return [i.opcode for i in instructions]


def test_loops_nest_and_reach_behind_the_end() -> None:
    """Three nested loops, the innermost behind EXIT, each with what is its own; what nothing reaches is left out."""
    program = read(NESTED)
    tile, k, wait = program.loops
    assert (tile.parent, k.parent, wait.parent) == (None, tile, k)
    assert opcodes(tile.own) == ["IADD3", "BRA"]
    assert opcodes(k.own) == ["SYNCS.PHASECHK.TRANS64.TRYWAIT", "BRA", "UTMALDG.2D", "BRA.U", "BRA"]
    assert opcodes(wait.own) == ["NANOSLEEP.SYNCS", "BRA"]
    assert opcodes(program.once) == ["S2R", "EXIT"]
    assert program.innermost("UTMALDG") is k
    assert program.innermost("NANOSLEEP") is wait


def test_innermost_is_one_loop_or_an_error() -> None:
    """An instruction outside of every loop, or a prefix that is no opcode, has no innermost loop."""
    for opcode in ("EXIT", "UTMA"):
        with pytest.raises(LookupError, match=f"0 innermost loops have {opcode}"):
            read(NESTED).innermost(opcode)


def test_branch_for_diverged_threads_falls_through() -> None:
    """BRA.DIV has no predicate, and what follows it runs all the same."""
    assert "EXIT" in opcodes(read(NESTED.replace("BRA.U UP0,", "BRA.DIV UR4,")).instructions)


def test_bsync_goes_where_its_bssy_says() -> None:
    """Threads that meet at a BSYNC go on at the label of the BSSY with the same barrier."""
    text = """\
        /*0000*/                   BSSY B0, `(.L_x_1) ;
        /*0010*/                   BSYNC B0 ;
        /*0020*/                   NOP ;
.L_x_1:
        /*0030*/                   EXIT ;
"""
    assert opcodes(read(text).instructions) == ["BSSY", "BSYNC", "EXIT"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("nothing", "no instructions"),
        ("        /*0000*/                   BRX R2 -0x10 ;", "not followed"),
        ("        /*0000*/                   BRA `(.L_x_9) ;", "no label .L_x_9"),
        ("        /*0000*/                   BRA 0x100 ;", "without a label"),
    ],
)
def test_what_cannot_be_read_is_refused(text: str, complaint: str) -> None:
    """Text that would be misread is an error."""
    with pytest.raises(ValueError, match=complaint):
        read(text)


def test_instructions_taken_for_one_another_count_as_one_kind() -> None:
    """Additions in three spellings are one kind of work; vector and uniform ones are two."""
    lines = ["IADD3 R0, R0, 0x1, RZ", "VIADD R0, R0, 0x1", "IMAD.IADD R0, R0, 0x1, R1", "UIADD3 UR4, UR4, 0x1, URZ"]
    text = "\n".join(f"        /*{16 * at:04x}*/                   {line} ;" for at, line in enumerate(lines))
    assert histogram(read(text).instructions) == {"add": 3, "UIADD3": 1}


def blackwell(name: str) -> Program:
    """A kernel of the emulator's corpus, assembled for sm_100a."""
    text = (TEXTS / f"{name}.sm_100a.ptx").read_text("utf-8")
    entry = text.split(".entry ")[1].split("(")[0].strip()
    return read(disassemble(assemble(text, "sm_100a", kernel_name=entry).image))


def test_blackwell_loops() -> None:
    """A persistent tcgen05 matmul: the k-loop has copies, UTCHMMA and UTCBAR; the tiles' loop loads from TMEM."""
    program = blackwell("matmul_device_maps")
    k = program.innermost("UTCHMMA")
    assert program.innermost("UTMALDG") is k
    assert program.innermost("UTCBAR") is k
    assert k.has("SYNCS.PHASECHK.TRANS64.TRYWAIT")
    tile = program.innermost("UTMASTG")
    assert program.innermost("LDTM") is tile
    assert k.parent is tile
    assert not any(i.base.startswith("LDTM") for i in k.instructions)
