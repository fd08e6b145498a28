"""Three kernels of each chip as reviewed text: a change of what is emitted shows up as a difference of these files.

``pytest tests/kernels/test_golden_ptx.py --update-golden`` rewrites them.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tilekit.assembly.fragment import every_fragment
from tilekit.dtypes import BF16, E4M3, E5M2, F16, F32
from tilekit.epilogue.functions import ElementwiseSpec
from tilekit.kernels.matmul.blackwell_config import BlackwellConfig
from tilekit.kernels.matmul.config import MatmulConfig
from tilekit.kernels.matmul.kernel import trace
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import SM_90A, SM_100A

GOLDEN = Path(__file__).parent / "golden"

KERNELS = {
    "default": (MatmulSpec(), MatmulConfig(), SM_90A),
    "fp8_bias_gelu_multicast_both": (
        MatmulSpec(
            E4M3, E5M2, BF16, functions=ElementwiseSpec(scale="pointer", bias=F32, activation="gelu"), batched=True
        ),
        MatmulConfig(tile=(128, 64), cluster=(2, 2), output_buffers=1),
        SM_90A,
    ),
    "residual_in_turn": (
        MatmulSpec(functions=ElementwiseSpec(residual=BF16)),
        MatmulConfig(tile=(64, 64), cluster=(2, 1), stages=3, schedule="pingpong"),
        SM_90A,
    ),
    "f16_mn_major_direct_silu": (
        MatmulSpec(F16, F16, F32, "mn", "mn", functions=ElementwiseSpec(activation="silu"), store="direct"),
        MatmulConfig(tile=(64, 64), cluster=(1, 1), consumers=1, stages=4, in_flight=0),
        SM_90A,
    ),
    "blackwell_default": (MatmulSpec(), BlackwellConfig(), SM_100A),
    "blackwell_fp8_n_major_bias_gelu_multicast": (
        MatmulSpec(
            E4M3, E5M2, BF16, "k", "mn", functions=ElementwiseSpec("pointer", bias=F32, activation="gelu"), batched=True
        ),
        BlackwellConfig(tile=(128, 64), cluster=(2, 2), output_buffers=1, clc_stages=3),
        SM_100A,
    ),
    "blackwell_f16_direct_silu_half_rows_static": (
        MatmulSpec(F16, F16, F32, "k", "mn", functions=ElementwiseSpec(activation="silu"), store="direct"),
        BlackwellConfig(tile=(64, 32), cluster=(1, 1), cta_group=1, k_group=2, stages=4, clc_stages=0),
        SM_100A,
    ),
}


def plain(ptx: str) -> str:
    """The text without the origins of its lines, which move with every edit of the Python."""
    return "".join(re.sub(r" *//@ .*", "", line) + "\n" for line in ptx.splitlines())


@pytest.mark.parametrize("name", KERNELS)
def test_text_is_as_reviewed(name: str, update_golden: bool) -> None:
    """The kernel's text equals the file, line for line."""
    file = GOLDEN / f"{name}.ptx"
    text = plain(trace(*KERNELS[name]).ptx)
    if update_golden:
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert text.splitlines() == file.read_text(encoding="utf-8").splitlines()


def test_no_file_is_left_over() -> None:
    """Every golden file belongs to a kernel."""
    assert {file.stem for file in GOLDEN.glob("*")} == set(KERNELS)


@pytest.mark.parametrize("name", KERNELS)
def test_golden_files_hold_no_origins(name: str) -> None:
    """The files keep roles and the shared-memory map, and nothing of where lines came from."""
    text = (GOLDEN / f"{name}.ptx").read_text(encoding="utf-8")
    assert "//@role mma warps=" in text
    assert "//@shared inputs.full" in text
    assert ".py:" not in text


@pytest.mark.parametrize("name", KERNELS)
def test_registers_are_declared_once_and_used(name: str) -> None:
    """No two registers of a kernel share a name, in whatever scope, and none is declared for nothing."""
    text = (GOLDEN / f"{name}.ptx").read_text(encoding="utf-8")
    fragments = {local for _, fragment in every_fragment() for local in fragment.locals}
    lists = re.findall(r"\.reg \.\w+ ([^;]+);", text)
    declared = [register.strip() for names in lists for register in names.split(",")]
    own = [register for register in declared if register not in fragments]
    assert len(set(own)) == len(own)
    uses = Counter(re.findall(r"\w+", text))
    for register in own:
        name, several, _ = register.partition("<")
        assert uses[f"{name}0"] > 0 if several else uses[name] > 1, register
