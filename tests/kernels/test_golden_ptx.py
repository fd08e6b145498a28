"""Kernels of both chips as reviewed text: a change of what is emitted shows up as a difference of these files.

``pytest tests/kernels/test_golden_ptx.py --update-golden`` rewrites them. `golden_form` says what they keep of a text.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from golden_form import golden, renamed
from small_kernels import SmallKernel

from tilekit.assembly.fragment_files import every_fragment
from tilekit.assembly.instruction_sets import PTX
from tilekit.assembly.types import U32
from tilekit.assembly.writer import Writer
from tilekit.drivers.warp_specialized import WarpSpecialized
from tilekit.dtypes import BF16, E2M1X2, E4M3, E5M2, F16, F32
from tilekit.emulator import Device
from tilekit.epilogue.functions import ElementwiseSpec
from tilekit.kernels.block_scaled.spec import BlockScaledSpec
from tilekit.kernels.matmul.kernel import trace
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig
from tilekit.kernels.matmul.sm_100a.config import BlackwellConfig
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.runtime.assembler import assemble
from tilekit.targets import SM_90A, SM_100A

GOLDEN = Path(__file__).parent / "golden"

KERNELS = {
    "default": (MatmulSpec(), MatmulConfig(), SM_90A),
    "fp8_bias_gelu_multicast": (
        MatmulSpec(
            E4M3, E5M2, BF16, batched=True, functions=ElementwiseSpec(scale="pointer", bias=F32, activation="gelu")
        ),
        MatmulConfig(tile=(64, 32), cluster=(1, 2), consumers=1, output_buffers=1),
        SM_90A,
    ),
    "residual_in_turn": (
        MatmulSpec(functions=ElementwiseSpec(residual=BF16)),
        MatmulConfig(tile=(64, 32), cluster=(2, 1), stages=3, schedule="pingpong"),
        SM_90A,
    ),
    "f16_mn_major_direct": (
        MatmulSpec(F16, F16, F32, "mn", "mn", store="direct"),
        MatmulConfig(tile=(64, 64), cluster=(1, 1), consumers=1, stages=4, in_flight=0),
        SM_90A,
    ),
    "blackwell_default": (MatmulSpec(), BlackwellConfig(), SM_100A),
    "blackwell_fp8_n_major_direct_static": (
        MatmulSpec(
            E4M3, E5M2, BF16, "k", "mn", batched=True, functions=ElementwiseSpec("pointer", activation="silu"),
            store="direct",
        ),
        BlackwellConfig(tile=(64, 32), cluster=(1, 2), cta_group=1, k_group=2, stages=4, clc_stages=0),
        SM_100A,
    ),
    "blackwell_nvfp4": (
        BlockScaledSpec(E2M1X2, E2M1X2, F32, scaled="nvfp4"),
        BlackwellConfig(tile=(128, 128), stages=4, clc_stages=0, output_buffers=1),
        SM_100A,
    ),
}  # fmt: skip
"""Each shows something that no other does: the more there are, the less anyone reads."""

EACH = pytest.mark.parametrize("name", KERNELS)


@cache
def traced(name: str) -> str:
    """The kernel's text as the writer gives it."""
    return trace(*KERNELS[name]).assembly


@pytest.mark.golden
@EACH
def test_text_is_as_reviewed(name: str, update_golden: bool) -> None:
    """The kernel's text, in the form that is reviewed, equals the file, line for line."""
    file = GOLDEN / f"{name}.ptx"
    text = golden(traced(name))
    if update_golden:
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert text.splitlines() == file.read_text(encoding="utf-8").splitlines()


@pytest.mark.golden
def test_no_file_is_left_over() -> None:
    """Every golden file belongs to a kernel."""
    assert {file.stem for file in GOLDEN.glob("*")} == set(KERNELS)


@EACH
def test_the_kernel_assembles(name: str) -> None:
    """What is reviewed is legal: the trace assembles without a spill, and so does its text with other names."""
    kernel = trace(*KERNELS[name])
    for text in (kernel.assembly, renamed(kernel.assembly)):
        assembled = assemble(text, KERNELS[name][2].name, kernel_name=kernel.name)
        assert assembled.resources.spill_store_bytes == 0


@EACH
def test_registers_are_declared_once_and_used(name: str) -> None:
    """No two registers of a kernel share a name, in whatever scope, and none is declared for nothing."""
    text = re.sub(r" *//@ .*", "", traced(name))
    fragments = {local for _, fragment in every_fragment(PTX) for local in fragment.locals}
    lists = re.findall(r"\.reg \.\w+ ([^;]+);", text)
    declared = [register.strip() for names in lists for register in names.split(",")]
    own = [register for register in declared if register not in fragments]
    assert len(set(own)) == len(own)
    uses = Counter(re.findall(r"\w+", text))
    for register in own:
        name, several, _ = register.partition("<")
        assert uses[f"{name}0"] > 0 if several else uses[name] > 1, register


@EACH
def test_the_form_keeps_every_instruction(name: str) -> None:
    """Roles, the map of shared memory and every operation are in it in their order; lines of Python are not."""
    text, form = traced(name), golden(traced(name))
    for kept in ("//@role mma warps=", "//@shared inputs.full"):
        assert kept in form
    assert ".py:" not in form
    assert _operations(form) == _operations(text)


def _operations(text: str) -> list[str]:
    """The operation of each line, a label's name without its number; of several lines with one, the first."""
    found = re.findall(r"^ *(?:@!?\w+ +)?(?!\.reg)([^ \d:]\S*?)\d*:?(?= |$)", text, re.MULTILINE)
    return [name for name, before in zip(found, ["", *found], strict=False) if name != before]


def _loops() -> str:
    """Nested loops and branches, with values that begin before, in and after them and live across each other."""
    k = SmallKernel(pointers=1)
    w = k.w
    total, n = w.variable(U32, 1, "total"), w.constant(U32, 5)
    for i in w.range(n, name="i"):
        scaled = i * 3 + 1
        inner = w.variable(U32, scaled, "total")
        for j in w.range(i + 2, name="j"):
            inner.assign(inner + (j * scaled) + i)
            with w.when(inner > 40):
                inner.assign(inner - 7)
        total.assign(total * 5 + inner)
    k.store(0, w.constant(U32, 0), total + n)
    return w.text()


def test_other_names_compute_the_same() -> None:
    """With registers whose names are used again, in fewer of them, a kernel of nested loops has the result it had."""
    total = 1
    for i in range(5):
        inner = scaled = i * 3 + 1
        for j in range(i + 2):
            inner += j * scaled + i
            inner -= 7 * (inner > 40)
        total = total * 5 + inner
    text = _loops()
    for kernel in (text, renamed(text)):
        out = np.zeros(1, np.uint32)
        Device("sm_90a").load(kernel)["small"].launch(grid=1, block=32, args=[out])
        assert out[0] == total + 5
    lists = [sum(names.count(",") + 1 for names in re.findall(r"\.reg [^;]+", t)) for t in (text, renamed(text))]
    assert lists[1] < lists[0]


def _changed(before: str, after: str) -> int:
    """Lines of a unified difference that begin with + or -."""
    lines = difflib.ndiff(before.splitlines(), after.splitlines())
    return sum(line[0] in "+-" for line in lines)


def test_two_more_instructions_are_a_small_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two instructions added to the set-up of every kernel change fewer than 20 lines of all files together."""
    set_up = WarpSpecialized._set_up

    def longer(self: WarpSpecialized, w: Writer, *given: object) -> None:
        (w.shared_base + 8) * 3
        set_up(self, w, *given)

    before = {name: golden(traced(name)) for name in KERNELS}
    monkeypatch.setattr(WarpSpecialized, "_set_up", longer)
    after = {name: golden(trace(*kernel).assembly) for name, kernel in KERNELS.items()}
    changed = {name: _changed(before[name], after[name]) for name in KERNELS}
    assert all(changed.values())
    assert sum(changed.values()) < 20
