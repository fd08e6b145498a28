"""What ptxas refuses the emulator refuses, and what ptxas takes it takes: on texts damaged at random."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from cuda.pathfinder import find_nvidia_binary_utility

from tests.emulator.ptx.acceptance.damage import damaged
from tests.emulator.ptx.acceptance.sources import damaged_text, files, lists, snippets
from tests.emulator.ptx.acceptance.verdicts import DEFECT, compare, emulator_refuses
from tilekit.cli.app import app
from tilekit.emulator.ptx.lint.lint import lint

FILES = """
    nvcc/atomics.sm_80 nvcc/block_reduce.sm_80 nvcc/block_reduce.sm_90a nvcc/cluster_histogram.sm_100a
    nvcc/constant_memory.sm_90a nvcc/cub_block.sm_80 nvcc/group_functions.sm_80 nvcc/look_back_scan.sm_90a
    nvcc/pipeline.sm_100a nvcc/pipeline.sm_90a nvcc/radix_match.sm_100a nvcc/sparse_rows.sm_80
    nvcc/stencil.sm_90a nvcc/tcgen05_gemm.sm_100a nvcc/thread_locks.sm_80 nvcc/thread_locks.sm_90a
    nvcc/tma_tile.sm_90a nvcc/warp_functions.sm_80 nvcc/warp_functions.sm_90a nvcc/wmma_gemm.sm_90a
    triton/atomics_f32.sm_100a triton/atomics_half.sm_80 triton/atomics_i32.sm_100a triton/attention.sm_100a
    triton/attention.sm_80 triton/convolution.sm_90a triton/descriptor_copy.sm_90a triton/embedding.sm_100a
    triton/gluon_mma_v2.sm_80 triton/layer_norm_backward.sm_90a triton/linear_attention.sm_90a
    triton/linear_recurrence.sm_90a triton/matmul_bias_relu.sm_90a triton/matmul_f32.sm_90a
    triton/matmul_f64.sm_90a triton/matmul_grouped_maps.sm_100a triton/matmul_host_maps.sm_100a
    triton/matmul_nvfp4.sm_100a triton/matmul_persistent.sm_100a triton/quantize_rows.sm_100a
    triton/rope_f16.sm_80 triton/softmax.sm_90a
""".split()  # noqa: SIM905
"""Corpus texts to damage; a fixed list, so that a file more in the corpus changes no other text."""
LIST_TEXTS, SNIPPET_TEXTS, FILE_TEXTS = 50, 35, 11
"""How many damages of each list of instructions, of each snippet and of each file."""
PARTS = 4


def damages() -> list[tuple[str, int]]:
    """Names of sources, and the number of each of their damaged texts."""
    counts = {
        **dict.fromkeys(lists(), LIST_TEXTS),
        **dict.fromkeys(snippets(), SNIPPET_TEXTS),
        **dict.fromkeys((f"emulator/ptx/corpus/ptx/{name}.ptx" for name in FILES), FILE_TEXTS),
    }
    return [(name, number) for name, count in counts.items() for number in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize("part", [0, 1, *(pytest.param(part, marks=pytest.mark.breadth) for part in range(2, PARTS))])
def test_same_verdict_on_damaged_texts(part: int, tmp_path: Path) -> None:
    """Of a thousand texts with one small damage each, ptxas and the emulator take the same."""
    ptxas = find_nvidia_binary_utility("ptxas")
    if ptxas is None:
        pytest.skip("ptxas is not installed")
    chosen = damages()[part::PARTS]
    compared = [compare(ptxas, *damaged_text(*each), tmp_path) for each in chosen]
    assert sum(bool(each and each.by_ptxas) for each in compared) > len(chosen) // 3
    different = [f"{each}: {found}" for each, found in zip(chosen, compared, strict=True) if found and found.differs]
    assert different == []


def test_enough_texts_that_do_not_depend_on_each_other() -> None:
    """There are a thousand damaged texts, and what one source gives depends on no other source."""
    assert len(damages()) >= 1000
    name = f"emulator/ptx/corpus/ptx/{FILES[0]}.ptx"
    first = damaged_text(name, 0)
    assert first == damaged_text(name, 0)
    assert len({damaged_text(name, number) for number in range(FILE_TEXTS)}) == FILE_TEXTS


GARBAGE = (
    "", "\0", "\x00" * 64, "\ufeff.version 8.0", "é" * 20, "/*", '"', '.version "', "." * 300, "9" * 5000, "@" * 99,
    ".version 8.0\n.target sm_90a\n" + "{" * 5000, ".version 8.0\n.target sm_90a\n.entry k() {" + "{" * 5000,
    ".version 8.0\n.target sm_90a\n.entry k() { .reg .b32 r<" + "9" * 5000 + ">; }",
    ".version 8.0\n.target sm_90a\n.global .b8 x[" + "9" * 300 + "];",
    "\U0001f600", "\x7fELF\x02\x01\x01" + "\xff" * 99,
    ".version 8.0\n.target sm_90a\n.global .b8 x = 1e99999;",
    ".version 8.0\n.target sm_90a\n.global .f64 x = 1e308*1e308;",
    ".version 8.0\n.target sm_90a\n.global .b32 x = (.s64)(1e308*1e308);",
)  # fmt: skip


def garbage(number: int) -> str:
    """Text that is none: characters at random, or what is left of a real text."""
    rng = random.Random(number)
    if number < len(GARBAGE):
        return GARBAGE[number]
    if number % 2:
        return "".join(chr(rng.choice((rng.randrange(128), rng.randrange(0x2000)))) for _ in range(rng.randrange(400)))
    text = damaged_text(rng.choice([*lists(), *snippets(), *files()]), number)[1]
    for _ in range(rng.randrange(1, 12)):
        text = damaged(text, rng)[1]
    return text


@pytest.mark.parametrize("part", range(4))
def test_garbage_is_no_traceback(part: int) -> None:
    """Whatever a text is, loading it ends well or with the documented error, and lint ends with remarks."""
    for number in range(part, 400, 4):
        text = garbage(number)
        assert not emulator_refuses(text).startswith(DEFECT)
        assert all(remark.line > 0 for remark in lint(text))


@pytest.mark.parametrize("command", ["emulate", "lint"])
def test_garbage_on_the_command_line(command: str, tmp_path: Path) -> None:
    """`tilekit emulate` and `tilekit lint` say what is wrong with a file, and exit with 1 or 2."""
    from typer.testing import CliRunner

    for number in range(0, 60, 2):
        file = tmp_path / f"{number}.ptx"
        file.write_text(garbage(number), encoding="utf-8", errors="surrogatepass")
        result = CliRunner().invoke(app, [command, str(file), *(["--block", "32"] if command == "emulate" else [])])
        assert result.exception is None or isinstance(result.exception, SystemExit), (number, result.exception)
        assert result.exit_code in (0, 1, 2)


HEAD = ".version 8.6\n.target sm_90a\n.address_size 64\n"


@pytest.mark.parametrize(
    "body",
    [
        "{" * 4000 + "}" * 4000,
        "mov.b32 %r1, " + "(" * 4000 + "1" + ")" * 4000 + ";",
        "mov.b32 %r1, " + "-" * 5000 + "1;",
        "mov.b32 %r1, " + "1 ? " * 2000 + "1" + ": 2" * 2000 + ";",
    ],
)
def test_deep_nesting(body: str) -> None:
    """Braces, parentheses, signs and conditions may nest as deep as they like."""
    text = f"{HEAD}.entry k() {{ .reg .b32 %r<4>;\n{body}\nret; }}"
    assert emulator_refuses(text) == ""


@pytest.mark.parametrize(
    ("declaration", "body", "message"),
    [
        ("", ".reg .b32 x<4294967296>;", "4294967296 has more than 32 bits"),
        ("", ".shared .b32 x[-1];", "expected how many elements, a whole number without sign"),
        ("", ".shared .align 3 .b8 x;", "an alignment is a power of two, for example 2"),
        ("", "ret;;", "expected an instruction, a label or a directive, found ';'"),
        ("", "t: .branchtargets ; brx.idx %r1, t;", "expected a label, found ';'"),
        ("", ".reg .b32 %r2;", "%r2 is declared twice in one scope"),
        ("", "add.u32 %r1, %tid.x, 1;", "mov %tid.x to a register first: add does not read it"),
        ("", "add.u32 %r1, %f1, 1;", r"register %f1 is \.f32, the instruction's type is \.u32"),
        ("", "add.f32 %f1, %f1, 1;", r"an integer where the type is \.f32: write 1\.0"),
        ("", "ld.global.u32 %r1, [%r2];", r"an address in \.global has 64 bits, and %r2 has 32"),
        (".const .b32 c;", "ld.global.u32 %r1, [c];", r"c is in \.const, and the instruction reaches \.global"),
        ("", "ld.relaxed.global.u32 %r1, [%rd1];", r"\.relaxed needs a scope, for example \.relaxed\.gpu"),
        ("", "bar.sync 16;", "a CTA has barriers 0 to 15, not 16"),
        ("", "cvt.rn.f64.f32 %d1, %f1;", r"cvt\.f64\.f32 is exact and takes no \.rn"),
        ("", "shfl.idx.b32 %r1, %r2, 0, 31;", r"write shfl\.sync and the mask of the lanes"),
        (".global .b32 x; .global .b32 x;", "", "x is declared twice in one scope"),
        (".global .f32 x = 1;", "", r"an integer in x, whose elements are \.f32: write 1\.0"),
        (".const .b8 x[65537];", "", r"variables in \.const take 65,537 bytes: at most 65,536"),
        ("", "slct.u32.s32 %r1, %f1, %r2, %r3;", r"register %f1 is \.f32, the instruction's type is \.u32"),
        ("", "vadd.s32.s32.s32 %r1, %f1, %r2;", r"register %f1 is \.f32, and an integer is needed"),
        ("", "set.lt.u32.f32 %f1, %f2, %f3;", r"register %f1 is \.f32, the instruction's type is \.u32"),
        ("", "add.f16x2 %f1, %r1, %r2;", r"register %f1 is \.f32, the instruction's type is \.f16x2"),
        ("", "mul.f16 %r1, 1.0, %r2;", r"a constant where the type is \.f16: mov it to a register"),
        ("", "cvt.rn.f32.s32 %f1, 1.5;", r"a floating-point number where the type is \.s32"),
        ("", "mov.u32 %r1, %tid;", r"a vector is packed as bits: mov\.b32"),
        ("", "mov.b64 %rd1, {%r1, %rd2};", "of one vector have different widths"),
        ("", "mov.b64 %rd1, {%r1, %r2, %r3};", r"the elements have 96 bits, the type \.b64 has 64"),
        ("", "add.u32 %r1+2, %r2, %r3;", r"the result is a register, not %r1\+2"),
        ("", "mov.b64 %rd1, {%r1+1, %r2};", r"expected ',' or '}' in a vector"),
        ("", "sub.u32 _, %r1, %r2;", "the result cannot be dropped"),
        ("", "mad.cc.u32 %r1, %r2, %r3, %r3;", r"write mad\.lo or mad\.hi"),
        ("", "add.cc.u32 %r1, %r2, %r3, %r3;", "3 operands are needed, and 4 are given"),
        ("", "mad.sat.hi.s32 %r1, %r2, %r3, %r3;", r"\.hi comes first: mad\.hi"),
        ("", "cp.async.ca.global.shared [%rd1], [%rd2], 16;", r"\.shared comes before \.global"),
        ("", "cp.async.ca.shared.global.L2::cache_hint [%rd1], [%rd2], 16;", "needs a cache policy"),
        ("", "cp.bulk.async.commit_group;", r"\.async\.bulk\.commit_group comes first"),
        (
            ".shared .align 16 .b8 s[16];",
            "cp.async.bulk.global.shared::cta.bulk_group [s], [s], 16;",
            r"s is in \.shared, and the instruction reaches \.global",
        ),
        (
            ".const .align 16 .b8 c[16];",
            "cp.async.bulk.prefetch.L2.global [c], 16;",
            r"c is in \.const, and the instruction reaches \.global",
        ),
        (
            "",
            "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f0,%f1,%f2,%f3}, {%f0,%f1,%f2,%f3}, {%r1,%r2}, "
            "{%f0,%f1,%f2,%f3};",
            r"register %f0 is \.f32, and a matrix of \.tf32 lies in \.b32",
        ),
        ("", "discard.global.L2 [%rd1], 64;", "the bytes are 128, not 64"),
        (
            ".func f(.param .align 8 .b8 a[8]) { ret; }",
            "{ .param .align 4 .b8 x[8]; call f, (x); }",
            r"f: x has \.align 4, and a has \.align 8",
        ),
        (
            ".func f(.param .align 8 .b8 a[8]) { ret; }",
            "{ .param .b64 x; call f, (x); }",
            "f: x is a single element, and a is an array",
        ),
        (".func f(.param .s32 a) { ret; }", "{ .param .f32 x; call f, (x); }", r"f: x is \.f32, and a is \.s32"),
        (".func f(.reg .u32 a) { ret; }", "call f, (%f1);", r"f: %f1 is \.f32, and a is \.u32"),
        (".func f();", "", r"f is declared and has no body: write \.extern"),
    ],
)
def test_what_ptxas_refuses(declaration: str, body: str, message: str) -> None:
    """Each kind of text that ptxas refuses is refused by name, with what is legal."""
    registers = ".reg .b32 %r<4>; .reg .b64 %rd<4>; .reg .f32 %f<4>; .reg .f64 %d<4>;"
    said = emulator_refuses(f"{HEAD}{declaration}\n.entry k() {{ {registers}\n{body}\nret; }}")
    assert re.search(message, said), said
    assert "line" in said


@pytest.mark.parametrize(
    "body",
    [
        "st.shared.v4.b32 [s], {%r1, 1.0, %r2, %f3};",
        "ld.shared.v2.f32 {%u1, %u2}, [s];",
        "add.u32 %r1, %r2+1, %r3;",
        "mad.hi.sat.s32 %r1, %r2, %r3, %r1;",
        "cp.async.shared.global.ca [%rd1], [%rd2], 16;",
        "mov.u64 %rd1, k;",
        "mov.u32 %w1, %r1;",
    ],
)
def test_what_ptxas_takes(body: str) -> None:
    """Texts that look odd and are taken by ptxas."""
    registers = ".reg .b32 %r<4>; .reg .u32 %u<4>; .reg .b64 %rd<4>; .reg .f32 %f<4>; .reg .f16x2 %w<2>;"
    assert emulator_refuses(f"{HEAD}.shared .align 16 .b8 s[16];\n.entry k() {{ {registers}\n{body}\nret; }}") == ""


def test_versions_of_old_targets() -> None:
    """A target needs the version that introduced it, also before sm_80."""
    said = emulator_refuses(".version 1.4\n.target sm_20\n.entry k() { ret; }")
    assert "write .version 2.0 or later" in said
    assert emulator_refuses(".version 2.0\n.target sm_20\n.entry k() { ret; }") == ""


@pytest.mark.parametrize(
    ("directives", "message"),
    [
        (".maxntid 128 .reqntid 128", r"\.maxntid and \.reqntid exclude each other"),
        (".maxnreg 0", r"\.maxnreg 0: 1 is the least"),
        (".maxntid", "expected a number behind .maxntid"),
        (".blocksareclusters .reqntid 32 .reqnctapercluster 2", r"\.blocksareclusters needs PTX 9\.0"),
        (".maxnregs 3", r"unknown directive \.maxnregs of \.entry k; did you mean \.maxnreg"),
    ],
)
def test_directives(directives: str, message: str) -> None:
    """Directives of a kernel: their numbers, what excludes what, and what they need."""
    said = emulator_refuses(f"{HEAD}.entry k() {directives} {{ ret; }}")
    assert re.search(message, said), said
