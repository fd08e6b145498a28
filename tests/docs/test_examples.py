"""The examples run and find what they say."""

from __future__ import annotations

import runpy

import pytest
from pages import ROOT

from tilekit.assembly.writer import Writer
from tilekit.runtime.assembler import assemble

EXAMPLES = ROOT / "examples"


def _run(name: str) -> None:
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")


def test_composed_matmul_is_exact(capsys: pytest.CaptureFixture[str]):
    """A kernel composed by hand computes every element of a ragged product exactly."""
    _run("compose_matmul.py")
    assert "100000 elements on the" in capsys.readouterr().out


def test_composed_matmul_assembles():
    """ptxas takes the composed kernel without a spill and without serialising its wgmma."""
    writer: Writer = runpy.run_path(str(EXAMPLES / "compose_matmul.py"))["compose"]()[0]
    assembled = assemble(writer.text(), "sm_90a", kernel_name=writer.name)
    assert assembled.resources.spill_store_bytes == 0


def test_emulator_finds_the_planted_faults(capsys: pytest.CaptureFixture[str]):
    """The program by itself is clean; the race and the hang planted in it are found, with the roles and the stage."""
    _run("emulate_ptx.py")
    clean, race, hang = capsys.readouterr().out.split("\n\n")
    assert "nothing found" in clean
    assert race.startswith("race: stage[")
    assert "read by role double (warp 1)" in race
    assert hang.startswith("deadlock:")
    assert "cycle: copy -> empty[0] -> double -> full[0] -> copy" in hang


def test_hand_written_program_assembles():
    """ptxas takes the hand-written program that the emulator runs."""
    assemble((EXAMPLES / "double.ptx").read_text(), "sm_90a", kernel_name="double_it")


def test_mixture_of_experts(capsys: pytest.CaptureFixture[str]):
    """Tokens routed to experts and back in two launches agree with a loop over tokens."""
    _run("mixture_of_experts.py")
    assert "384 rows for 6 experts in 2 launches" in capsys.readouterr().out


def test_quantised_linear(capsys: pytest.CaptureFixture[str]):
    """An 8-bit layer with outliers keeps ordinary tokens exact with scales of rows and columns, and not with one."""
    _run("quantised_linear.py")
    assert "with a scale a token and a channel" in capsys.readouterr().out


def test_torch_layer(capsys: pytest.CaptureFixture[str]):
    """A torch module on tilekit.matmul agrees with torch."""
    pytest.importorskip("torch")
    _run("torch_linear.py")
    assert "right" in capsys.readouterr().out
