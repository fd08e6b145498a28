"""One Python in two instruction sets: uniform values in scalars, lanes that part, fragments, and what is refused."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tilekit.assembly import fragment_files as fragments
from tilekit.assembly.errors import FragmentError, TraceError
from tilekit.assembly.fragment_files import parse_fragments
from tilekit.assembly.instruction_sets import GCN
from tilekit.assembly.types import B32, F32, GMEM, PRED, SMEM, U32, U64
from tilekit.assembly.writer import Role, Writer
from tilekit.emulator import Device
from tilekit.errors import AssemblerError
from tilekit.runtime.assembler import assemble
from tilekit.targets import GFX942, GFX950, SM_80, Target


def kernel(target: Target) -> Writer:
    """Each thread adds up 0.5 a step and 2 where the step is odd, as many steps as its index modulo the limit says."""
    w = Writer("steps", target=target, threads=128)
    out, limit = w.parameter("out", GMEM), w.parameter("limit", U32)
    thread = w.thread()
    total = w.variable(F32, 0.0, "total")
    steps = thread - (thread >> 2) * 4
    with w.when(limit > 2):
        for i in w.range(steps, name="i"):
            total.assign(total + 0.5)
            with w.when((i & 1) == 1):
                total.assign(total + w.select(thread < limit, w.constant(F32, 2.0), 4.0, F32))
    for _ in w.range(limit, name="again"):
        total.assign(total + 16.0)
    address = (out + w.widen_multiply(thread, 4)).retyped(GMEM)
    w.isa.memory.store_global_f32(address=address, value=total, valid=thread < 100)
    return w


def expected(limit: int) -> list[float]:
    """What the kernel stores."""
    each = []
    for thread in range(128):
        steps = thread % 4 if limit > 2 else 0
        total = sum(0.5 + (i & 1) * (2 if thread < limit else 4) for i in range(steps)) + 16 * limit
        each.append(total if thread < 100 else -1.0)
    return each


@pytest.mark.parametrize("target", [SM_80, GFX942, GFX950], ids=lambda target: target.name)
@pytest.mark.parametrize("limit", [0, 1, 3, 50])
def test_the_python_is_right(limit: int, target: Target) -> None:
    """The emulator runs it, in either instruction set."""
    device = Device(target.name, seed=limit)
    out = device.buffer(np.full(128, -1, np.float32))
    module = device.load(kernel(target).text())
    module["steps"].launch(grid=1, block=128, args=[out, np.uint32(limit)])
    assert out.read().tolist() == expected(limit)


def code(w: Writer) -> list[str]:
    """Instructions and labels, without comments."""
    text = w.text()
    body = text[text.index(f"\n{w.name}:") : text.index(".size")].splitlines()
    return [line.split("//")[0].strip() for line in body if line.split("//")[0].strip()]


def test_the_same_python_in_another_instruction_set() -> None:
    """Uniform values are in SGPRs, the others in VGPRs; where lanes part EXEC is narrowed, and given back."""
    lines = code(kernel(GFX950))
    assert any(re.fullmatch(r"s_load_dword s\d+, s\[0:1\], 0x8", line) for line in lines), "the limit is uniform"
    assert any(re.fullmatch(r"s_cmp_gt_u32 s\d+, 2", line) for line in lines), "and so is what is computed of it"
    assert any(re.fullmatch(r"v_add_f32 v\d+, 0.5|v_add_f32 v\d+, 0x3f000000, v\d+", line) for line in lines)
    saved = [line.split()[1].rstrip(",") for line in lines if "_saveexec_b64 s[" in line]
    assert len(saved) == 3, "around the loop whose count differs, the branch inside it, and the store"
    assert all(f"s_mov_b64 exec, {pair}" in lines for pair in saved)
    assert lines[-1] == "s_endpgm"


def test_what_is_assigned_later_counts() -> None:
    """A product of a variable is made per lane where, further down the loop, lanes assign the variable differently."""
    w = Writer("later", target=GFX950, threads=64)
    out, thread, kept = w.parameter("out", GMEM), w.thread(), w.variable(U32, 1, "kept")
    for _ in w.range(5, name="i"):
        product = kept * 3
        with w.when(thread > product):
            kept.assign(2)
        w.isa.memory.store_release_gpu(address=out, value=product)
    assert product.uniform, "as far as the trace knew when the product was made"
    lines = code(w)
    assert any(line.startswith("v_mul_lo_u32") for line in lines)
    assert not any(line.startswith("s_mul_i32") for line in lines)


def test_what_lives_in_one_branch_is_uniform_there() -> None:
    """A loop in the branch of one lane counts in a scalar: lanes that are not there never see the counter."""
    w = Writer("inside", target=GFX950, threads=64)
    out, count = w.parameter("out", GMEM), w.parameter("count", U32)
    with w.when(w.elect()):
        for i in w.range(count, name="i"):
            w.isa.memory.store_release_gpu(address=out, value=i)
    lines = code(w)
    assert sum(line.startswith("s_cbranch_scc1") for line in lines) == 2, "over the loop, and back"
    assert any(re.fullmatch(r"s_add_u32 (s\d+), \1, 1", line) for line in lines)


def test_what_leaves_its_branch_is_not() -> None:
    """A constant that one lane's branch assigns to a variable of before differs from lane to lane behind it."""
    for type_, value in ((U32, 7), (PRED, 1)):
        w = Writer("outside", target=GFX950, threads=64)
        out, variable, thread = w.parameter("out", GMEM), w.variable(type_, 0, "variable"), w.thread()
        with w.when(thread == 5):
            variable.assign(value)
        held = variable if type_ is U32 else w.select(variable, w.constant(U32, 7), 0, U32)
        w.isa.memory.store_release_gpu(address=(out + w.widen_multiply(thread, 4)).retyped(GMEM), value=held)
        device = Device("gfx950")
        found = device.buffer(np.full(64, 9, np.uint32))
        device.load(w.text())["outside"].launch(grid=1, block=64, args=[found])
        assert found.read().tolist() == [7 if lane == 5 else 0 for lane in range(64)]


def test_lanes_that_left_a_loop_keep_what_they_had() -> None:
    """What a lane computed in its last turn is what it has behind the loop, predicates too."""
    w = Writer("leave", target=GFX942, threads=64)
    out, thread = w.parameter("out", GMEM), w.thread()
    last, even = w.variable(U32, 100, "last"), w.variable(PRED, 0, "even")
    for i in w.range(thread & 7, name="i"):
        last.assign(i * 3)
        even.assign((i & 1) == 0)
    value = last + w.select(even, w.constant(U32, 1000), 0, U32)
    w.isa.memory.store_release_gpu(address=(out + w.widen_multiply(thread, 4)).retyped(GMEM), value=value)
    device = Device("gfx942")
    found = device.buffer(np.zeros(64, np.uint32))
    device.load(w.text())["leave"].launch(grid=1, block=64, args=[found])
    wanted = [100 if n == 0 else 3 * (n - 1) + (1000 if n % 2 else 0) for n in (lane % 8 for lane in range(64))]
    assert found.read().tolist() == wanted


def test_constants_cost_no_register() -> None:
    """A constant stands where it is read; the address of shared memory is one, 0."""
    w = Writer("fold", target=GFX950, threads=64)
    thread, seven = w.thread(), w.constant(U32, 7)
    array = w.shared.allocate("array", size=4, count=64, alignment=4)
    address = array.at(w, thread * seven)
    w.isa.memory.store_shared_b32(address=address.retyped(SMEM), value=thread)
    lines = code(w)
    assert any(re.fullmatch(r"v_mul_lo_u32 v\d+, v\d+, 7", line) for line in lines)
    assert lines[-3:-1] == ["v_lshlrev_b32 v1, 2, v1", "ds_write_b32 v1, v0"]


def test_descriptor_and_metadata_say_what_there_is(tmp_path: Path) -> None:
    """LDS, arguments and their offsets, and a hidden one where the count of workgroups is asked for."""
    w = Writer("described", target=GFX942, threads=192)
    w.shared.allocate("block", size=48, count=3)
    narrow, wide, number = w.parameter("narrow", U32), w.parameter("wide", U64), w.parameter("number", F32)
    count = w.cta_count()
    out = w.parameter("out", GMEM)
    w.isa.memory.store_release_gpu(address=out, value=count + narrow + w.isa.convert.low_word(wide=wide))
    text = w.text()
    assert ".amdhsa_group_segment_fixed_size 144" in text
    assert ".max_flat_workgroup_size: 192" in text
    found = re.findall(
        r"(?:\.name: (\w+)\n\s+)?\.offset: (\d+)\n\s+\.size: (\d+)\n\s+\.value_kind: (\w+)", text.replace("- ", "  ")
    )
    assert found == [
        ("narrow", "0", "4", "by_value"),
        ("wide", "8", "8", "by_value"),
        ("number", "16", "4", "by_value"),
        ("out", "24", "8", "global_buffer"),
        ("", "32", "4", "hidden_block_count_x"),
    ]
    assert number.type is F32
    device = Device("gfx942")
    result = device.buffer(np.zeros(1, np.uint32))
    image = assemble(text, "gfx942", kernel_name="described").image
    for module in (text, image):
        arguments = [np.uint32(3), np.uint64(1 << 40 | 50), np.float32(1), result]
        device.load(module)["described"].launch(grid=7, block=192, args=arguments)
        assert result.read()[0] == 60


def test_a_tensor_map_is_no_argument() -> None:
    """It is refused by name, with what to pass instead."""
    w = Writer("k", target=GFX950, threads=64)
    w.tensor_map("odd")
    words = "no copy engine; nearest: a gmem"
    with pytest.raises(TraceError, match=rf"the map parameter 'odd'.*gfx950 has {words}.*TK-TARGET-003"):
        w.text()


def test_an_assembler_s_error_names_the_fragment_s_python_line(tmp_path: Path) -> None:
    """What LLVM refuses is shown with the component, the file and the line that placed it."""
    w = Writer("refused", target=GFX950, threads=64)
    w.gcn.lds.read_transposed_b16(address=w.shared_base, offset=0)
    with pytest.raises(AssemblerError) as caught:
        assemble(w.text().replace("--gfx950", "--gfx942"), "gfx942", kernel_name="refused")
    for word in ("ds_read_b64_tr_b16", "test_an_assembler_s_error", "test_dialect.py:", "role setup", "TK-ASM-001"):
        assert word in str(caught.value)


def test_a_scalar_that_is_asked_for_must_be_one() -> None:
    """A value that may differ from lane to lane is refused, with the operand; a uniform one in a VGPR is read back."""
    w = Writer("mixed", target=GFX950, threads=64)
    base = w.parameter("base", GMEM)
    w.gcn.buffer.descriptor(base=base, bytes=w.thread() + 1)
    with pytest.raises(FragmentError) as caught:
        w.text()
    for word in (
        "fragment descriptor (buffer.s:",
        "operand bytes",
        "differ from lane to lane",
        "test_dialect.py:",
        "TK-FRAG-006",
    ):
        assert word in str(caught.value)
    w = Writer("mixed", target=GFX950, threads=64)
    base = w.parameter("base", GMEM)
    size = w.isa.memory.load_count(address=base, valid=w.constant(PRED, 1))
    buffer = w.gcn.buffer.descriptor(base=base, bytes=size)
    w.gcn.buffer_lds.load_b32(buffer=buffer, place=w.thread(), lds=w.shared_base, offset=0)
    assert any(line.startswith("v_readfirstlane_b32") for line in code(w))


def test_tiles_are_used_where_they_lie() -> None:
    """Consecutive registers of a tile are an operand as they are; others are gathered."""
    w = Writer("tiles", target=GFX950, threads=64)
    out, thread = w.parameter("out", GMEM), w.thread()
    lanes = (out + w.widen_multiply(thread, 32)).retyped(GMEM)
    tile = w.tile(F32, 8, "tile")
    for i, value in enumerate(tile):
        value.assign(float(i))
    odd = type(tile)([tile[7], tile[1], tile[5], tile[3]])
    w.isa.memory.store_global_f32x4(address=lanes, values=tile[4:8])
    assert sum(line.startswith("v_mov") for line in code(w)) == 4, "what the store reads, where it reads it"
    w.isa.memory.store_global_f32x4(address=(lanes + 16).retyped(GMEM), values=odd)
    device = Device("gfx950")
    found = device.buffer(np.zeros((64, 8), np.float32))
    device.load(w.text())["tiles"].launch(grid=1, block=64, args=[found])
    assert (found.read() == [4, 5, 6, 7, 7, 1, 5, 3]).all()


def test_sums_are_in_accumulator_registers_where_there_are_more_for_it() -> None:
    """With a SIMD for each wave they are AGPRs; with more waves, whose registers are all VGPRs, they are those."""
    for threads, letter in ((256, "a"), (512, "v")):
        w = Writer("sums", target=GFX950, threads=threads)
        sums, a = w.tile(F32, 4, "sums"), w.tile(B32, 4, "a")
        for value in (*sums, *a):
            value.assign(0)
        w.gcn.mfma.f32_16x16x32(sums=sums, a=a, b=a, type="bf16")
        assert any(re.match(rf"v_mfma_f32_16x16x32_bf16 {letter}\[", line) for line in code(w))


FRAGMENT = """//! fragment  twice
//! about     x + x, and the lower word of an address.
//! in        x      u32
//! in        where  gmem  scalar
//! out       sum    u32
//! temp      kept   u32   scalar
//! given     workgroup
//! kind      scalar
//! target    gfx9
//! see       nowhere
s_add_u32 ${kept}, ${workgroup}, ${where[0]}
v_add_u32 ${sum}, ${x}, ${x}
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("gmem  scalar", "gmem  scaler", "some.s:4: fragment twice: 'scaler' is no register file; nearest: scalar"),
        (
            "given     workgroup",
            "given     workshop",
            "some.s:7: fragment twice: 'workshop' is not given",
        ),
        ("temp      kept   u32 ", "temp      kept   u31 ", "some.s:6: fragment twice: 'u31' is no register type"),
        ("temp      kept   u32 ", "temp      kept   u32[*]", "temporary kept has no fixed length"),
        ("gfx9", "sm_90", "`target` must read like `gfx942`"),
        ("${kept}, ", "s0, ", "operands declared and never used: ['kept']"),
    ],
)
def test_a_header_s_mistakes_are_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    """What the header of this instruction set may say beside is checked when the file is read."""
    file = tmp_path / "some.s"
    file.write_text(FRAGMENT, "utf-8")
    assert len(parse_fragments(file, GCN)) == 1
    assert old in FRAGMENT
    file.write_text(FRAGMENT.replace(old, new, 1), "utf-8")
    with pytest.raises(FragmentError, match="TK-FRAG-001") as caught:
        parse_fragments(file, GCN)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("v_adds_u32 ${sum}, ${x}, ${x} ${kept} ${workgroup} ${where}", "is no instruction"),
        ("s_waitcnt vmcnt(3) // ${sum}${x}${kept}${workgroup}${where}", "counts are worked out"),
        ("s_add_u32 ${kept}, ${workgroup}, ${where[2]} // ${sum}${x}", "has words that where does not have; it has 2"),
        ("s_cbranch_scc0 nowhere", "there is no label 'nowhere' to go to"),
        ("s_and_saveexec_b64 vcc, exec", "no line behind it gives the lanes back"),
    ],
)
def test_a_line_s_mistakes_are_named(tmp_path: Path, line: str, message: str) -> None:
    """Lines are read when they are placed, where the sizes of operands are known: fragment, file and line are named."""
    file = tmp_path / "some.s"
    file.write_text(f"{FRAGMENT}{line}\n", "utf-8")
    (fragment,) = parse_fragments(file, GCN)
    w = Writer("k", target=GFX950, threads=64)
    w.place(fragment, x=w.thread(), where=w.parameter("where", GMEM))
    with pytest.raises(FragmentError, match="TK-FRAG-001") as caught:
        w.text()
    assert "fragment twice (some.s:13)" in str(caught.value)
    assert message in str(caught.value)


@pytest.mark.parametrize("target", [GFX942, GFX950], ids=lambda target: target.name)
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("v_add_u32 ${x}, ${x}, ${x}", "writes 'x', which is the kernel's to keep; nearest: inout"),
        ("s_mov_b64 ${where}, 0", "writes 'where', which is the kernel's to keep"),
        ("s_mov_b32 ${where[1]}, 0", "writes 'where', which is the kernel's to keep"),
        ("s_add_u32 ${workgroup}, ${workgroup}, 1", "writes 'workgroup', which is the kernel's to keep"),
    ],
)
def test_what_a_fragment_is_given_stays_the_kernel_s(tmp_path: Path, line: str, message: str, target: Target) -> None:
    """A text that writes an `in`, or what the hardware fills, is refused; an `inout` it may write."""
    file = tmp_path / "some.s"
    for direction in ("in   ", "inout"):
        file.write_text(f"{FRAGMENT}{line}\n".replace("in        x ", f"{direction}     x ", 1), "utf-8")
        (fragment,) = parse_fragments(file, GCN)
        w = Writer("k", target=target, threads=64)
        w.place(fragment, x=w.variable(U32, w.thread(), "x"), where=w.parameter("where", GMEM))
        if direction == "inout" and "${x}" in line:
            w.text()
            continue
        with pytest.raises(FragmentError, match="TK-FRAG-001") as caught:
            w.text()
        assert "fragment twice (some.s:13)" in str(caught.value)
        assert message in str(caught.value)


def test_an_instruction_is_one_of_the_chip_s(tmp_path: Path) -> None:
    """Of a file for several chips a kernel places what its own has; else fragment, line and chip are named."""
    file = tmp_path / "some.s"
    file.write_text(f"{FRAGMENT}v_cvt_pk_bf16_f32 ${{sum}}, ${{x}}, ${{x}}\n", "utf-8")
    (fragment,) = parse_fragments(file, GCN)
    for target in (GFX950, GFX942):
        w = Writer("k", target=target, threads=64)
        w.place(fragment, x=w.thread(), where=w.parameter("where", GMEM))
        if target is GFX950:
            w.text()
            continue
        with pytest.raises(FragmentError, match=r"some\.s:13.*no instruction of gfx942.*TK-FRAG-001"):
            w.text()


def test_names_are_checked_before_any_spelling() -> None:
    """What is wrong with the Python is an error of the trace, the same in every instruction set."""
    for target in (SM_80, GFX950):
        w = Writer("k", target=target, threads=128)
        with pytest.raises(TraceError, match="TK-TRACE-005"):
            _ = w.thread() + 1.5
        with pytest.raises(TraceError, match="TK-TRACE-004"):
            _ = w.constant(F32, 1.0) & 1


def test_a_component_of_another_instruction_set() -> None:
    """An instruction set's own fragments are refused where another is written, with the component that placed them."""
    for target, ask in ((GFX950, lambda w: w.ptx.mbarrier.fence_init()), (SM_80, lambda w: w.gcn.barrier.meet())):
        with pytest.raises(FragmentError, match="TK-FRAG-005") as caught:
            ask(Writer("k", target=target, threads=128))
        for word in ("test_dialect.py", "test_a_component_of_another", target.name, target.isa):
            assert word in str(caught.value)


def test_a_fragment_that_the_instruction_set_lacks() -> None:
    """A component that asks for what there is not: its name, the chip and the place."""
    w = Writer("k", target=GFX950, threads=128)
    for ask, name in (
        (lambda: w.isa.memory.load_dsmem_f32x4(address=w.shared_base), "memory.load_dsmem_f32x4"),
        (lambda: w.gcn.wgmma.commit(), "file 'wgmma'"),
    ):
        with pytest.raises(FragmentError, match="TK-FRAG-003") as caught:
            ask()
        for word in (name, "of gcn for gfx950", "test_dialect.py", "test_a_fragment_that"):
            assert word in str(caught.value)


def test_a_fragment_that_the_chip_lacks() -> None:
    """An instruction of the later chip, on the earlier; and of the earlier, on the later."""
    w = Writer("k", target=GFX942, threads=128)
    with pytest.raises(FragmentError, match=r"needs gfx950.*TK-FRAG-003"):
        w.gcn.lds.read_transposed_b16(address=w.shared_base, offset=0)
    w = Writer("k", target=GFX950, threads=128)
    with pytest.raises(FragmentError, match=r"needs xf32_matrix.*TK-FRAG-003"):
        w.gcn.mfma.f32_16x16x8_xf32(sums=w.tile(F32, 4, "s"), a=w.tile(F32, 2, "a"), b=w.tile(F32, 2, "b"))


def test_an_instruction_set_without_a_dialect() -> None:
    """A chip that nothing can be written for is refused when the writer is made."""
    with pytest.raises(TraceError, match=r"gfx950 has the instruction set 'rdna', .* there is ptx, gcn.*TK-TRACE-008"):
        Writer("k", target=replace(GFX950, isa="rdna"), threads=64)


def test_what_the_chip_lacks() -> None:
    """Verbs without a fragment degrade as on any chip that lacks the capability."""
    w = Writer("k", target=GFX950, threads=128)
    before = w.text()
    w.launch_dependents()
    w.wait_for_prerequisites()
    w.set_registers(40, raised=False)
    w.cluster_arrive()
    w.cluster_wait()
    assert w.text() == before
    assert w.lanes == 64
    with pytest.raises(TraceError, match="TK-TARGET-003"):
        w.barrier_arrive(id=1, threads=64)
    with pytest.raises(TraceError, match="TK-TARGET-003"):
        Writer("k", target=GFX950, threads=128, cluster=2)


def test_roles_are_no_instruction_set_s_own() -> None:
    """A role is a branch of whole waves."""
    w = Writer("k", target=GFX950, threads=128)
    value = w.parameter("value", U32)
    with w.role(Role("only", range(1, 2), frozenset()), w.warp()):
        value.assign(3)
    assert any(re.fullmatch(r"s_cbranch_scc[01] \.Lend_only", line) for line in code(w))


def test_each_instruction_set_is_spelled_in_one_place() -> None:
    """Of `assembly`, only `assembly/ptx` holds a mnemonic or directive of PTX in its strings; the same of GCN."""
    folder = Path(fragments.__file__).parent
    ptx = re.compile(r"\b(mov|add|mul|setp|selp|shl|shr|ld|cvta)\.|\bbra\b|\.(reg|pragma|maxntid|entry|param)\b|;$")
    gcn = re.compile(r"^[vs]_[a-z]+(_|$)|^(ds|buffer|global)_[a-z]+_|amdhsa|amdgcn")
    for words, isa in ((ptx, "ptx"), (gcn, "gcn")):
        speaking = {
            file.relative_to(folder).parts[0]
            for file in folder.rglob("*.py")
            for node in ast.walk(_without_docstrings(ast.parse(file.read_text("utf-8"))))
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and words.search(node.value)
        }
        assert speaking == {isa}


def _without_docstrings(tree: ast.Module) -> ast.Module:
    """The module without strings that stand alone."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            alone = [n for n in node.body if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)]
            node.body = [n for n in node.body if n not in alone]
    return tree
