"""Kernels that Triton made for gfx942 and gfx950 run unchanged on the emulator and compute what NumPy computes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from corpus_case import compare
from hip_corpus import ASM, HipCase, cases, emulate, fields

from tilekit.emulator.gcn.kernel import Kernel
from tilekit.emulator.gcn.lint import lint
from tilekit.runtime.assembler import assemble

ALL = cases()
_TIMED = (
    "spin_lock", "matmul_split_k_locks", "matmul_stream_k", "layer_norm_backward", "histogram", "matmul_bf16",
    "amd_ticket_lock", "amd_handed_on", "amd_last_block", "amd_stream_k_locks", "amd_atomics_narrow",
    "gluon_pipelined", "gluon_global_to_lds", "gluon_lds_ring_3",
)  # fmt: skip


@pytest.mark.sampled(one_in=9)
@pytest.mark.parametrize("case", ALL, ids=str)
def test_result(case: HipCase) -> None:
    """The kernel runs under full checking, nothing is found, and its results match the reference."""
    report, launch = emulate(case)
    compare(launch, report.printed)
    assert report.clean, str(report)


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("schedule", ["random", "fair"])
@pytest.mark.parametrize("case", [case for case in ALL if case.name in _TIMED], ids=str)
def test_other_orders(case: HipCase, schedule: str) -> None:
    """Kernels that wait on each other give the same results, and the same verdict, in other orders."""
    for seed in (1, 2):
        report, launch = emulate(case, seed=seed, schedule=schedule)
        compare(launch, report.printed)
        assert report.clean, str(report)


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("case", ALL[::7], ids=str)
def test_result_without_checks(case: HipCase) -> None:
    """Without checks the results are the same."""
    report, launch = emulate(case, check="off")
    compare(launch, report.printed)


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize("case", ALL[::5], ids=str)
def test_lint_is_silent(case: HipCase) -> None:
    """A compiler's text has the wait states that the chips ask for, and nothing else to remark on."""
    assert lint(case.text) == []


def test_every_text_is_a_case() -> None:
    """No text lies around unused, and there are at least forty kernels for each chip."""
    assert len(ALL) == len(list(ASM.glob("*.s.xz")))
    for chip in ("gfx942", "gfx950"):
        assert sum(case.chip == chip for case in ALL) >= 40


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize("case", ALL[::9], ids=str)
def test_code_objects_run_as_their_texts(case: HipCase) -> None:
    """A text that LLVM's assembler has made a code object of runs from its bytes, and gives the same."""
    # Triton names the target by a triple of its own, which LLVM's assembler does not know.
    text = re.sub(r'\.amdgcn_target ".*"', f'.amdgcn_target "amdgcn-amd-amdhsa--{case.chip}"', case.text)
    image = assemble(text, case.chip, kernel_name=fields(text)["entry"]).image
    report, launch = emulate(case, image=image)
    compare(launch, report.printed)
    assert report.clean, str(report)


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("case", ALL[4::11], ids=str)
def test_preloaded_arguments_need_no_prologue(case: HipCase) -> None:
    """Firmware that preloads arguments skips the loads of the same that precede a kernel; without them it runs too."""
    entry = fields(case.text)["entry"]
    head, prologue, body = re.split(rf"(^{entry}:.*?s_branch[^\n]*\n)", case.text, maxsplit=1, flags=re.M | re.S)
    assert re.search(r"amdhsa_user_sgpr_kernarg_preload_length [1-9]", body)
    kept = re.sub(r"^\s*(s_load_\w+|s_waitcnt) .*\n", "", prologue, flags=re.M)
    assert len(kept.splitlines()) <= len(prologue.splitlines()) - 2
    report, launch = emulate(case, image=head + kept + body)
    compare(launch, report.printed)
    assert report.clean, str(report)


@pytest.mark.parametrize("case", ALL[4::60], ids=str)
def test_watched_launches_run_as_others(case: HipCase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting, drawing, and stopping again and again change neither results nor what is reported."""
    plain, _ = emulate(case, seed=3, schedule="random")
    launch = Kernel.launch
    options: dict[str, Any] = {"statistics": True, "timeline": tmp_path / "trace.json"}

    def counted(kernel: Kernel, *args: Any, **more: Any) -> Any:
        return launch(kernel, *args, **options, **more)

    def stopped(kernel: Kernel, *args: Any, **more: Any) -> Any:
        with kernel.debug(*args, stop="steps=37", **more) as session:
            while session.stopped and session.steps < 20_000:
                assert str(session)
                session.step(5)
                if session.stopped:
                    session.step(3, warp=0)
                if session.stopped:
                    session.resume(f"steps={session.steps + 1000}")
            return session.finish()

    for way in (counted, stopped):
        monkeypatch.setattr(Kernel, "launch", way)
        report, results = emulate(case, seed=3, schedule="random")
        compare(results, report.printed)
        assert replace(report, seconds=0, statistics=None) == replace(plain, seconds=0)
    assert (tmp_path / "trace.json").stat().st_size
