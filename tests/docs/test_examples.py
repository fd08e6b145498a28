"""The examples run and find what they say."""

from __future__ import annotations

import ast
import io
import re
import runpy
import sys
import tokenize

import ml_dtypes
import numpy as np
import pytest
from pages import ROOT

from tilekit.compose import ComposedKernel
from tilekit.runtime.assembler import assemble

EXAMPLES = ROOT / "examples"


def _run(name: str) -> None:
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")


def test_composed_matmul_is_exact(capsys: pytest.CaptureFixture[str]):
    """A kernel composed by hand computes every element of a ragged product exactly."""
    _run("compose_matmul.py")
    assert "100000 elements, all exact" in capsys.readouterr().out


def test_composed_matmul_assembles():
    """ptxas takes the composed kernel without a spill and without serialising its wgmma."""
    kernel: ComposedKernel = runpy.run_path(str(EXAMPLES / "compose_matmul.py"))["composed_matmul"]
    assert kernel.resources.spill_store_bytes == 0


def test_composed_amd_matmul(capsys: pytest.CaptureFixture[str]):
    """Both AMD chips, both ways to count and both ways to load: exact, and told one by one."""
    _run("compose_amd_matmul.py")
    assert len(capsys.readouterr().out.splitlines()) == 8


def test_composed_blackwell_matmul(capsys: pytest.CaptureFixture[str]):
    """The driver's five roles on sm_100a, with a gate and row sums: exact."""
    _run("compose_blackwell_matmul.py")
    assert "27200 elements and 200 row sums, all exact" in capsys.readouterr().out


def test_portable(capsys: pytest.CaptureFixture[str]):
    """One matmul on five chips, with each of their loaders and strategies: exact, and told one by one."""
    _run("portable.py")
    lines = capsys.readouterr().out.splitlines()
    assert sum("exact" in line for line in lines) == 26
    assert sum("choices" in line for line in lines) == 5


def test_fused_epilogues(capsys: pytest.CaptureFixture[str]):
    """SwiGLU, a gated residual, dropout, experts and the statistics of two norms are what NumPy says."""
    _run("fused_epilogues.py")
    assert len(capsys.readouterr().out.splitlines()) == 6


@pytest.mark.gpu
def test_composed_matmul_on_a_gpu():
    """The kernel composed by hand is exact on a GPU."""
    kernel: ComposedKernel = runpy.run_path(str(EXAMPLES / "compose_matmul.py"))["composed_matmul"]
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-2, 3, shape).astype(ml_dtypes.bfloat16) for shape in ((1000, 576), (520, 576)))
    expected = np.maximum(a.astype(np.float32) @ b.astype(np.float32).T, 0).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(kernel.bind(a, b, device="cuda")(), expected)


STRANGERS = {
    "gated_epilogue.py": (25, "tilekit"),
    "split_epilogue.py": (25, "tilekit"),
    "gated_row_sums.py": (60, "tilekit.compose"),
    "int8_weights.py": (60, "tilekit.compose"),
}
"""Kernels as a stranger writes them: lines of their own at most, and the one import of tilekit's."""


@pytest.mark.parametrize("name", STRANGERS)
def test_a_strangers_kernel(name: str, capsys: pytest.CaptureFixture[str]):
    """Kernels with an epilogue and a loader of their own run and are exact."""
    _run(name)
    assert "all exact" in capsys.readouterr().out


@pytest.mark.parametrize("name", STRANGERS)
def test_a_strangers_kernel_is_short(name: str):
    """It has few lines without blanks, comments and docstrings, and imports the public surface alone, in one line."""
    most, surface = STRANGERS[name]
    text = (EXAMPLES / name).read_text("utf-8")
    tree = ast.parse(text)
    imports = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imports |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    foreign = {name for name in imports if name.partition(".")[0] not in sys.stdlib_module_names}
    assert foreign == {"ml_dtypes", "numpy", surface}
    assert text.count("import tilekit") == 1
    assert not re.search(r"\b(tk|w|\w+)\._", text), "a private name"
    assert len(code_lines(text, tree)) <= most


def test_row_factors(capsys: pytest.CaptureFixture[str]):
    """A payload of a stranger's is exact on both chips, and has few lines without blanks, comments and docstrings."""
    _run("row_factors.py")
    ways = [f"{chip} {way} exact" for chip in ("sm_90a", "sm_100a") for way in ("staged", "ahead")]
    assert capsys.readouterr().out.splitlines() == ways
    text = (EXAMPLES / "row_factors.py").read_text("utf-8")
    assert not re.search(r"\b(tk|w|\w+)\._", text), "a private name"
    assert len(code_lines(text, ast.parse(text))) <= 60


def code_lines(text: str, tree: ast.Module) -> set[int]:
    """Lines with code on them."""
    layout = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    lines = {line for token in tokens if token.type not in layout for line in range(token.start[0], token.end[0] + 1)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node):
            lines -= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return lines


def test_scaled_linear(capsys: pytest.CaptureFixture[str]):
    """The finer a format's scales and elements, the nearer its products."""
    _run("scaled_linear.py")
    assert capsys.readouterr().out.startswith("mxfp8")


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


def test_deepseek_experts(capsys: pytest.CaptureFixture[str]):
    """An expert layer with scales of blocks, one expert without tokens, is as near to float64 as 8 bits allow."""
    _run("deepseek_experts.py")
    assert "192 rows for 4 experts in 2 launches" in capsys.readouterr().out


def test_resnet_block(capsys: pytest.CaptureFixture[str]):
    """A bottleneck block in four launches has every element that float64 has."""
    _run("resnet_block.py")
    assert "(2, 5, 5, 64), all exact" in capsys.readouterr().out


def test_transformer_layer(capsys: pytest.CaptureFixture[str]):
    """A layer in six launches is as near to float64 as bf16 allows."""
    _run("transformer_layer.py")
    assert "80 tokens of 128" in (found := capsys.readouterr().out)
    assert "right" in found


def test_quantised_linear(capsys: pytest.CaptureFixture[str]):
    """An 8-bit layer with outliers keeps ordinary tokens exact with scales of rows and columns, and not with one."""
    _run("quantised_linear.py")
    assert "with a scale a token and a channel" in capsys.readouterr().out


def test_torch_layer(capsys: pytest.CaptureFixture[str]):
    """A torch module on tilekit.matmul agrees with torch."""
    pytest.importorskip("torch")
    _run("torch_linear.py")
    assert "right" in capsys.readouterr().out
