"""The boundary between tracing and spelling admits another instruction set: one Python, in PTX and in AMDGCN."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import gcn_dialect
import numpy as np
import pytest
from gcn_dialect import GFX950, GcnDialect

from tilekit.assembly import fragment as fragments
from tilekit.assembly import instruction_sets
from tilekit.assembly.errors import FragmentError, TraceError
from tilekit.assembly.types import F32, GMEM, U32
from tilekit.assembly.writer import Role, Writer
from tilekit.emulator import Device
from tilekit.targets import SM_80, Target


@pytest.fixture(autouse=True)
def gcn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two fragments of the second instruction set, beside PTX's own."""
    root = fragments.fragment_root()
    (tmp_path / "ptx").symlink_to(root / "ptx")
    folder = tmp_path / "gcn" / "gfx9"
    folder.mkdir(parents=True)
    (folder / "memory.s").write_text(gcn_dialect.STORE, "utf-8")
    (folder / "special.s").write_text(gcn_dialect.THREAD, "utf-8")
    monkeypatch.setattr(fragments, "fragment_root", lambda: tmp_path)
    monkeypatch.setitem(instruction_sets.DIALECTS, "gcn", GcnDialect())


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


@pytest.mark.parametrize("limit", [0, 1, 3, 50])
def test_the_python_is_right(limit: int) -> None:
    """In PTX the emulator runs it."""
    device = Device("sm_80", seed=limit)
    out = device.buffer(np.full(128, -1, np.float32))
    module = device.load(kernel(SM_80).text())
    module["steps"].launch(grid=1, block=128, args=[out, np.uint32(limit)])
    assert out.read().tolist() == expected(limit)


def test_the_same_python_in_another_instruction_set() -> None:
    """Uniform values are in SGPRs, the others in VGPRs; where lanes part EXEC is narrowed, and given back."""
    text = kernel(GFX950).text()
    lines = [line.strip() for line in text.splitlines()]
    assert "%" not in text
    assert "bra" not in re.findall(r"\b\w+\b", text)
    assert "s_load_dword s3, s[0:1], 8" in lines, "the limit is uniform"
    assert any(re.fullmatch(r"s_cmp_gt_u32 s3, 2", line) for line in lines), "and so is what is computed of it"
    assert any(re.fullmatch(r"v_add_f32 v\d+, v\d+, v\d+", line) for line in lines), "each lane has its own sum"
    saved = [line.split()[1].rstrip(",") for line in lines if "_saveexec_b64 s[" in line]
    assert len(saved) == 2, "around the loop whose count differs, and the branch inside it"
    assert all(f"s_mov_b64 exec, {pair}" in lines for pair in saved)
    assert lines[-1] == "s_endpgm"


def test_what_is_assigned_later_counts() -> None:
    """A product of a variable is made per lane where, further down the loop, lanes assign the variable differently."""
    w = Writer("later", target=GFX950, threads=64)
    thread, kept = w.thread(), w.variable(U32, 1, "kept")
    for _ in w.range(5, name="i"):
        product = kept * 3
        with w.when(thread > product):
            kept.assign(2)
    assert product.uniform, "as far as the trace knew when the product was made"
    text = w.text()
    assert "v_mul_lo_u32" in text
    assert "s_mul_i32" not in text


def test_the_real_assembler_takes_it(tmp_path: Path) -> None:
    """LLVM's assembler for gfx950 accepts every line."""
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("needs ziglang, whose clang assembles AMDGCN")
    source = tmp_path / "steps.s"
    source.write_text(kernel(GFX950).text(), "utf-8")
    command = [sys.executable, "-m", "ziglang", "-cc1as", "-triple", "amdgcn-amd-amdhsa", "-target-cpu", "gfx950"]
    command += ["-filetype", "obj", str(source), "-o", str(tmp_path / "steps.o")]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr


def test_names_are_checked_before_any_spelling() -> None:
    """What is wrong with the Python is an error of the trace, the same in every instruction set."""
    for target in (SM_80, GFX950):
        w = Writer("k", target=target, threads=128)
        with pytest.raises(TraceError, match="TK-TRACE-005"):
            _ = w.thread() + 1.5
        with pytest.raises(TraceError, match="TK-TRACE-004"):
            _ = w.constant(F32, 1.0) & 1


def test_a_component_of_another_instruction_set() -> None:
    """PTX's own fragments are refused where another instruction set is written, with the component that placed them."""
    w = Writer("k", target=GFX950, threads=128)
    with pytest.raises(FragmentError, match="TK-FRAG-005") as caught:
        w.ptx.mbarrier.fence_init()
    for word in ("test_second_dialect.py", "test_a_component_of_another", "gfx950", "gcn"):
        assert word in str(caught.value)


def test_a_fragment_that_the_instruction_set_lacks() -> None:
    """A verb, or a shared component, without a fragment: its name, the chip and the place."""
    w = Writer("k", target=GFX950, threads=128)
    for ask, name in (
        (lambda: w.warp(), "special.warp_index"),
        (lambda: w.isa.memory.load_global_f32x4(address=w.shared_base), "memory.load_global_f32x4"),
        (lambda: w.isa.convert.unpack(packed=w.shared_base), "file 'convert'"),
    ):
        with pytest.raises(FragmentError, match="TK-FRAG-003") as caught:
            ask()
        for word in (name, "of gcn for gfx950", "test_second_dialect.py", "test_a_fragment_that"):
            assert word in str(caught.value)


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
    warp = w.parameter("warp", U32)
    with w.role(Role("only", range(1, 2), frozenset()), warp):
        warp.assign(3)
    assert "s_cbranch_scc1 end_only" in w.text()


def test_ptx_is_spelled_in_one_place() -> None:
    """Of `assembly`, only `assembly/ptx` holds a mnemonic or directive of PTX in its strings."""
    folder = Path(fragments.__file__).parent
    ptx = re.compile(r"\b(mov|add|mul|setp|selp|shl|shr|ld|cvta)\.|\bbra\b|\.(reg|pragma|maxntid|entry|param)\b|;$")
    speaking = {
        file.relative_to(folder).parts[0]
        for file in folder.rglob("*.py")
        for node in ast.walk(_without_docstrings(ast.parse(file.read_text("utf-8"))))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and ptx.search(node.value)
    }
    assert speaking == {"ptx"}


def _without_docstrings(tree: ast.Module) -> ast.Module:
    """The module without strings that stand alone."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            alone = [n for n in node.body if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)]
            node.body = [n for n in node.body if n not in alone]
    return tree
