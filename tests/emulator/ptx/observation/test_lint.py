"""Static checks: silent on kernels that are right, and each rule finds what it is for."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from product_kernels import DOUBLE, STRIDED, TICKETS, line_of

import tilekit
from tilekit.cli import kernels, workloads
from tilekit.emulator import PtxSyntaxError
from tilekit.emulator.ptx.language.availability import dialect
from tilekit.emulator.ptx.language.module_rules import check_module
from tilekit.emulator.ptx.language.parser import parse_module
from tilekit.emulator.ptx.lint.lint import RULES, Remark, lint

ROOT = Path(__file__).parents[4]
TEXTS = sorted((ROOT / "tests" / "emulator" / "ptx" / "corpus" / "ptx").glob("*/*.ptx"))


def kernel(*lines: str, directives: str = "", before: str = "") -> str:
    """A kernel of a few instructions over registers a0 to a7, d0 to d7 and p0 to p7."""
    body = "\n".join(f"    {line}" for line in lines)
    return f"""
.version 8.0
.target sm_90a
.address_size 64
.extern .shared .align 128 .b8 smem[];
{before}
.visible .entry kernel(.param .u64 out_param) {directives} {{
    .reg .b32 a<8>;
    .reg .b64 d<8>;
    .reg .pred p<8>;
{body}
    ret;
}}
"""


def rules(text: str) -> list[str]:
    """The rules that a text breaks."""
    return [remark.rule for remark in lint(text)]


def tilekit_kernel(dtype: str = "bf16", out_dtype: str | None = None, *, bias: bool = False) -> str:
    """Text of one of tilekit's kernels."""
    workload = workloads.workload_of(
        (4096, 4096, 4096), None, dtype, out_dtype, "k", "k", bias, "relu" if bias else None
    )
    return kernels.kernel_of(workload, "sm_90a", None).ptx


@pytest.fixture(scope="module")
def matmul() -> str:
    """Text of a matmul in clusters of two, with two consumers."""
    config = tilekit.MatmulConfig(tile=(128, 128), cluster=(2, 1), consumers=2)
    return tilekit.compile(tilekit.MatmulSpec(), "sm_90a", config).ptx


@pytest.mark.parametrize("part", range(4))
def test_silent_on_the_corpus(part: int):
    """Nothing is said of kernels by Triton and nvcc that run without a finding."""
    for path in TEXTS[part::4]:
        assert lint(path.read_text()) == [], path.name


@pytest.mark.parametrize(("dtype", "out", "bias"), [("bf16", None, True), ("e4m3", None, False), ("f16", "f32", True)])
def test_silent_on_tilekit(dtype: str, out: str | None, bias: bool):
    """Nothing is said of tilekit's own kernels."""
    assert lint(tilekit_kernel(dtype, out, bias=bias)) == []


@pytest.mark.parametrize("text", [DOUBLE, STRIDED, TICKETS], ids=["double", "strided", "tickets"])
def test_silent_on_small_kernels(text: str):
    """Nothing is said of the example and of the kernels of these tests."""
    assert lint(text) == []


BROKEN = {
    "syntax": kernel("mov.u32 a0 1;"),
    "unsupported": kernel("add.u33 a0, a1, 1;"),
    "setmaxnreg": kernel("setmaxnreg.dec.sync.aligned.u32 40;", directives=".maxntid 384, 1, 1"),
    "unused-register": kernel(".reg .b32 forgotten;", "mov.u32 a0, 1;"),
    "unused-label": kernel("mov.u32 a0, 1;", "nowhere:", "mov.u32 a0, 2;"),
    "uninitialised": kernel("add.u32 a0, a1, 1;"),
    "cluster-barrier": kernel("barrier.cluster.arrive.aligned;"),
    "mbarrier-init": kernel("mov.u32 a0, smem;", "mbarrier.arrive.shared::cta.b64 _, [a0];"),
    "bulk-group": kernel(
        "mov.u32 a0, smem;",
        "ld.param.u64 d0, [out_param];",
        "cp.async.bulk.global.shared::cta.bulk_group [d0], [a0], 128;",
    ),
    "aligned": kernel(
        "mov.u32 a0, %tid.x;", "setp.eq.u32 p0, a0, 0;", "@p0 barrier.cluster.arrive.aligned;",
        "barrier.cluster.wait.aligned;",
    ),
    "packed-halves": kernel(
        "mov.u32 a0, smem;", "mapa.shared::cluster.u32 a0, a0, 1;", "mov.u32 a1, 7;",
        "red.shared::cluster.add.noftz.f16x2 [a0], a1;",
    ),
    "proxy-fence": kernel(
        "mov.u32 a0, smem;",
        "ld.param.u64 d0, [out_param];",
        "st.shared.u32 [a0], 7;",
        "bar.sync 0;",
        "cp.async.bulk.global.shared::cta.bulk_group [d0], [a0], 128;",
        "cp.async.bulk.commit_group;",
        "cp.async.bulk.wait_group 0;",
    ),
}  # fmt: skip


@pytest.mark.parametrize("rule", BROKEN)
def test_each_rule_finds_its_mistake(rule: str):
    """A text that breaks one rule gets one remark, of that rule."""
    assert rules(BROKEN[rule]) == [rule]


def test_every_rule_is_tested():
    """No rule is without a text that breaks it; those of wgmma and tcgen05 are broken in real kernels below."""
    assert {*BROKEN, "wgmma", "tcgen05"} == RULES.keys()


@pytest.mark.parametrize("operation", ["fence", "commit_group", "wait_group"])
def test_wgmma_protocol(matmul: str, operation: str):
    """Without any fence, commit or wait, wgmma cannot be right."""
    broken = re.sub(rf"^\s*wgmma\.{operation}\.[^\n]*\n", "", matmul, flags=re.MULTILINE)
    assert broken != matmul
    found = lint(broken)
    assert [(remark.rule, f"no wgmma.{operation}" in remark.message) for remark in found] == [("wgmma", True)]


@pytest.mark.parametrize("operation", ["dealloc", "relinquish_alloc_permit", "commit", "wait::ld", "wait::st"])
def test_tcgen05_protocol(operation: str):
    """What tensor memory and its instructions need is missed by name, with the role that needs it."""
    text = tilekit.compile(tilekit.MatmulSpec(), "sm_100a").ptx
    assert lint(text) == []
    broken = re.sub(rf"^\s*tcgen05\.{operation}\.[^\n]*\n", "", text, flags=re.MULTILINE)
    assert broken != text
    (found,) = (remark for remark in lint(broken) if remark.rule == "tcgen05")
    assert f"no tcgen05.{operation} in this kernel" in found.message
    role = "epilogue" if operation.startswith("wait") else "mma"
    assert f"[{role} " in found.message


@pytest.mark.parametrize(
    ("instruction", "rule"),
    [
        (r"fence\.proxy\.async", "proxy-fence"),
        (r"cp\.async\.bulk\.commit_group", "bulk-group"),
        (r"mbarrier\.init", "mbarrier-init"),
        (r"barrier\.cluster\.wait", "cluster-barrier"),
    ],
)
def test_mistakes_in_a_real_kernel(matmul: str, instruction: str, rule: str):
    """Taking an instruction out of tilekit's matmul is noticed without running it."""
    broken = re.sub(rf"^[^\n/]*{instruction}[^\n]*\n", "", matmul, flags=re.MULTILINE)
    assert broken != matmul
    assert rule in rules(broken)


def test_setmaxnreg_of_a_real_kernel(matmul: str):
    """Without .minnctapersm ptxas would ignore the setmaxnreg of tilekit's matmul."""
    assert "setmaxnreg" in matmul
    assert rules(matmul.replace(".minnctapersm 1", "")) == ["setmaxnreg"]


def test_remarks_say_where_and_what_to_do():
    """A remark names the kernel, the line, the instruction and the nearest form."""
    text = kernel("mov.u32 a0, 1;", "add.u33 a0, a0, 1;")
    (remark,) = lint(text)
    assert remark.kernel == "kernel"
    assert remark.line == line_of(text, "add.u33")
    assert "add.u33" in remark.message
    assert "the nearest form known is 'add" in remark.hint
    assert str(Remark("aligned", "k", 3, "m", "h")) == "line 3, kernel k: aligned: m\n  hint: h"


def test_all_bad_instructions_are_found():
    """One bad instruction does not hide the next."""
    assert rules(kernel("add.u33 a0, a1, 1;", "sub.u33 a0, a1, 1;")) == ["unsupported", "unsupported"]


def test_target_decides():
    """tcgen05 is fine on sm_100a and not on sm_90a, whatever the text's own target."""
    text = kernel("tcgen05.fence::before_thread_sync;")
    assert rules(text) == ["unsupported"]
    assert lint(text, "sm_100a") == []


@pytest.mark.parametrize(
    "lines",
    [
        ("setp.eq.u32 p0, a1, 0;", "@p0 mov.u32 a0, 1;", "st.shared.u32 [a1], a0;"),
        ("mov.u32 a0, 1;", "fence.proxy.async;", "bar.sync 0;"),
        ("mov.u32 a2, %tid.x;", "setp.lt.u32 p0, a2, 128;", "@p0 bar.sync 1, 128;"),
        ("mov.u32 a2, %tid.x;", "shr.u32 a2, a2, 5;", "setp.eq.u32 p0, a2, 0;", "@p0 bar.sync 1, 32;"),
        ("mov.b64 d0, {a1, a5};", "mov.b64 {a2, a3}, d0;"),
    ],
    ids=["written-under-a-guard", "fence-first", "whole-warps", "one-warp", "packed-halves"],
)
def test_no_false_alarm(lines: tuple[str, ...]):
    """Texts that look like a mistake and are none: conditional writes, whole warps under a predicate, unused halves."""
    assert lint(kernel("mov.u32 a1, smem;", *lines)) == []


def test_paths_are_followed():
    """A fence on the only path to the store is enough; one on another path is not, yet such a path is no certainty."""
    start = ("mov.u32 a0, smem;", "ld.param.u64 d0, [out_param];", "st.shared.u32 [a0], 7;")
    end = ("cp.async.bulk.global.shared::cta.bulk_group [d0], [a0], 128;", "cp.async.bulk.commit_group;",
           "cp.async.bulk.wait_group 0;")  # fmt: skip
    branch = ("setp.eq.u32 p0, a0, 1;", "@p0 bra skip;", "fence.proxy.async;", "skip:")
    assert lint(kernel(*start, "fence.proxy.async;", *end)) == []
    assert lint(kernel(*start, *branch, *end)) == []
    assert rules(kernel(*start, "fence.proxy.async;", "st.shared.u32 [a0], 8;", *end)) == ["proxy-fence"]


MANY = kernel(
    "mov.u32 a0 1;",
    "add.u32 a1, a0, 1;",
    "foo.u32 a0, a1;",
    "add.u32 a1, b9, 1;",
    "mov.u32 a2, 3",
    "bra nowhere;",
    "wgmma.fence.sync.aligned;",
    before=".global .u32 twice;\n.global .u32 twice;",
)


def test_every_error_is_reported_by_line():
    """Errors of syntax, names and instructions come in one list in the order of lines, each once, and none follows."""
    lines = MANY.splitlines()
    wanted = [".global .u32 twice;", "mov.u32 a0 1", "foo.u32", "b9", "bra nowhere", "bra nowhere"]
    found = lint(MANY)
    assert [remark.line for remark in found] == sorted(remark.line for remark in found)
    assert [next(w for w in wanted if w in lines[remark.line - 1]) for remark in found] == wanted
    assert [remark.rule for remark in found] == ["syntax", "syntax", "unsupported", "syntax", "syntax", "syntax"]


def test_a_lost_declaration_brings_no_further_errors():
    """Where a declaration cannot be read, names that it may have declared are not said to be unknown."""
    assert [remark.line for remark in lint(kernel(".reg .b33 q0;", "mov.u32 a0, q0;"))] == [11]


def test_a_broken_function_does_not_hide_the_next():
    """Errors of two kernels, one of them in the head, are both found; the order is that of lines."""
    text = kernel("mov.u32 a0 1;", before=".visible .entry first(.param .u65 x) { ret; }")
    assert [remark.rule for remark in lint(text)] == ["syntax", "syntax"]


def test_damaged_texts_end_in_remarks():
    """Whatever is cut out of a text, lint ends, with remarks in order, the first of them the parser's own error."""
    text = tilekit_kernel()[:6000]
    draw = random.Random(5)
    for _ in range(60):
        first, last = sorted(draw.sample(range(len(text)), 2))
        last = min(last, first + 40)
        damaged = text[:first] + text[last:]
        found = lint(damaged)
        assert [remark.line for remark in found] == sorted(remark.line for remark in found)
        if found and found[0].rule == "syntax":
            with pytest.raises(PtxSyntaxError) as caught:
                check_module(module := parse_module(damaged), dialect(module.version, module.target, 1))
            assert caught.value.message in [remark.message for remark in found]
