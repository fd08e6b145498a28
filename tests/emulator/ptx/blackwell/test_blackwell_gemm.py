"""A whole GEMM for sm_100a, and everything that may be wrong with one: the emulator must notice each defect."""

from __future__ import annotations

import dataclasses
import functools
import gc
import re
import shutil
import subprocess
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from blackwell_gemm import gemm_text
from cuda import pathfinder

from tilekit.emulator import Device, EmulatorError, LaunchReport
from tilekit.emulator.ptx.execution.cta import Cta
from tilekit.emulator.ptx.execution.warp import Warp
from tilekit.emulator.ptx.synchronisation.mbarrier import Mbarrier

N, STAGES, STEPS = 64, 2, 3


def launch(
    text: str, group: int, *, seed: int = 0, schedule: str = "adversarial", box_n: int | None = None, steps: int = STEPS
) -> tuple[bool, LaunchReport]:
    """Run the GEMM on a 256 by 128 problem; returns whether the result is right."""
    device = Device("sm_100a", seed=seed, schedule=schedule)  # type: ignore[arg-type]
    rng = np.random.default_rng(0)
    m, n, k = 256, 2 * N, 64 * steps
    a = rng.integers(-4, 5, (m, k)).astype(ml_dtypes.bfloat16)
    b = rng.integers(-4, 5, (n, k)).astype(ml_dtypes.bfloat16)
    buffer_a, buffer_b, c = device.buffer(a), device.buffer(b), device.buffer(np.zeros((m, n), np.float32))
    map_a = device.tensor_map_tiled(buffer_a, box=(64, 128), swizzle="128B")
    map_b = device.tensor_map_tiled(buffer_b, box=(64, box_n or N // group), swizzle="128B")
    report = device.load(text)["gemm"].launch(
        grid=(2, 2, 1),
        block=192,
        cluster=(group, 1, 1),
        shared_bytes=1024 + STAGES * (128 + N // group) * 128,
        args=[map_a, map_b, c, np.uint32(n), np.uint32(steps)],
    )
    return np.array_equal(c.read(), a.astype(np.float32) @ b.astype(np.float32).T), report


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("schedule", ["adversarial", "random", "fair"])
@pytest.mark.parametrize("seed", [0, 1])
def test_result(group: int, schedule: str, seed: int) -> None:
    """The product is exact under every schedule, with one CTA or a pair for each tile, and nothing is found."""
    right, report = launch(gemm_text(N, STAGES, group), group, seed=seed, schedule=schedule)
    assert right
    assert report.clean, str(report)


@pytest.mark.parametrize("group", [1, 2])
def test_frees_its_machine(group: int) -> None:
    """A launch that has ended leaves no CTA, warp or mbarrier for Python's collector: a pass of it costs a while."""
    machine = (Cta, Warp, Mbarrier)
    gc.collect()
    before = {id(each) for each in gc.get_objects() if isinstance(each, machine)}
    gc.disable()
    try:
        launch(gemm_text(N, STAGES, group), group)
        assert not [each for each in gc.get_objects() if isinstance(each, machine) and id(each) not in before]
    finally:
        gc.enable()


@pytest.mark.parametrize("group", [1, 2])
def test_assembles(group: int, tmp_path: Path) -> None:
    """The assembler takes the same text."""
    ptxas = shutil.which("ptxas") or _wheel_ptxas()
    if ptxas is None:
        pytest.skip("no ptxas")
    source = tmp_path / "gemm.ptx"
    source.write_text(gemm_text(N, STAGES, group))
    command = [ptxas, "-arch=sm_100a", str(source), "-o", str(tmp_path / "gemm.cubin")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@functools.cache
def _wheel_ptxas() -> str | None:
    return pathfinder.find_nvidia_binary_utility("ptxas")


@dataclasses.dataclass(frozen=True)
class Mutation:
    """One defect: text replaced in the kernel, for which the emulator must raise, or report, something that matches."""

    name: str
    old: str
    new: str
    message: str
    groups: tuple[int, ...] = (1, 2)
    count: int = 1

    def __str__(self) -> str:
        return self.name


def wait(label: str, operands: str) -> str:
    """The two lines of a wait loop."""
    return f"  mbarrier.try_wait.parity.shared::cta.b64 %p0, {operands};\n  @!%p0 bra {label};\n"


WAIT_EMPTY, WAIT_FULL = wait("WAIT_EMPTY", "[%empty], %fill"), wait("WAIT_FULL", "[%full], %phase")
WAIT_ACC = wait("WAIT_ACC", "[%acc], 0")
MUTATIONS = [
    Mutation("no wait before a refill", WAIT_EMPTY, "", r"race|overwrit|tx|phase"),
    Mutation("wait for the wrong parity before a refill", "xor.b32 %fill, %phase, 1", "mov.u32 %fill, %phase",
             "deadlock"),
    Mutation("no wait for the tiles", WAIT_FULL, "", "race"),
    Mutation("wrong parity for the tiles", "[%full], %phase;", "[%full], %fill;", "race|deadlock|phase|poison"),
    Mutation("no wait for the accumulator", WAIT_ACC, "", "race|ever written"),
    Mutation("no commit to the empty barrier", "{free}", "", "deadlock"),
    Mutation("no commit to the accumulator's barrier", "{finish}", "", "deadlock"),
    Mutation("committed by no mma", "{mmas}", "", "tracks nothing|was ever written"),
    Mutation("announces too few bytes", "expect_tx_bytes", "expect_less", "bytes|tx|deadlock|race"),
    Mutation("announces too many bytes", "expect_tx_bytes", "expect_more", "bytes|tx|deadlock"),
    Mutation("first mma accumulates", "setp.ne.u32 %more, %i, 0", "setp.eq.u32 %more, %i, %i", "never written"),
    Mutation("no version in the descriptor", "{1 << 46", "{0", "version"),
    Mutation("a reserved bit of the descriptor", "| 1 << 16:#x}", "| 1 << 16 | 1 << 53:#x}", "reserved"),
    Mutation("a swizzle that does not exist", "2 << 61", "3 << 61", "swizzle = 3"),
    Mutation("a stride that misses the pattern", "64 << 32", "32 << 32", "stride byte offset"),
    Mutation("a start inside the pattern", "add.u32 %a, %a, 1024;\n  and.b32", "add.u32 %a, %a, 1152;\n  and.b32",
             "inside"),
    Mutation("illegal N", "n // 8 << 17", "(n // 8 + 1) << 17", "N = 72"),
    Mutation("illegal M", "128 * group // 16 << 24", "(128 * group // 16 + 2) << 24", "M ="),
    Mutation("a reserved bit of the instruction descriptor", "idesc = ", "idesc = 1 << 29 | ", "reserved"),
    Mutation("accumulates bf16 in f16", "idesc = 1 << 4 |", "idesc = ", "format of D"),
    Mutation("no deallocation", "  tcgen05.dealloc.{cg}.sync.aligned.b32 %tmem, {max(32, n)};", "",
             "ends with tensor memory"),
    Mutation("deallocates another size", "%tmem, {max(32, n)};", "%tmem, 32;", "where 64 were allocated"),
    Mutation("deallocates twice", "END:\n", "  tcgen05.dealloc.{cg}.sync.aligned.b32 %tmem, 64;\nEND:\n",
             "freed before"),
    Mutation("allocates after relinquishing", "  tcgen05.fence::before_thread_sync;\nALLOCATED", "{again}ALLOCATED",
             "permit"),
    Mutation("deallocates while the mma runs", WAIT_ACC, "  bra DONE;\n", "race|deallocated|exited|commit"),
    Mutation("another warp's lanes", "shl.b32 %t, %warp, 21", "shl.b32 %t, %warp, 22", "lanes are|not allocated|lanes"),
    Mutation("no wait for the loads", "  tcgen05.wait::ld.sync.aligned;\n", "", "before tcgen05.wait::ld"),
    Mutation("no fence after the accumulator", "WAIT_ACC;\n  tcgen05.fence::after_thread_sync;", "WAIT_ACC;", "fence"),
    Mutation("no fence before the teardown", "wait::ld.sync.aligned;\n  tcgen05.fence::before_thread_sync;",
             "wait::ld.sync.aligned;", "fence"),
    Mutation("every lane issues", "  @!%leader bra DONE;\nMMA_NEXT", "MMA_NEXT", "32 lanes"),
    Mutation("both CTAs issue", "  @%p1 bra DONE;\"", "\"", "race|arriv|deadlock|phase|exited|bytes", (2,)),
    Mutation("commit reaches one CTA only", "mov.b16 %both, 3", "mov.b16 %both, 1", "deadlock", (2,)),
    Mutation("commit to a CTA that does not exist", "mov.b16 %both, 3", "mov.b16 %both, 7", "multicast mask", (2,)),
    Mutation("signals a barrier outside the pair's rules", "{load} [%a], [%ma, {{%kc, %row}}], [%lead];",
             "{load.removesuffix('.cta_group::2')} [%a], [%ma, {{%kc, %row}}], [%lead];", "lies in CTA", (2,)),
    Mutation("leaves before its peer", "{leave}", "bar.sync 0;", "exited|deallocated|race|not run", (2,)),
    Mutation("mixed groups", "tcgen05.alloc.{cg}", "tcgen05.alloc.cta_group::1", "must have the same", (2,)),
]  # fmt: skip

SOURCE = Path(__file__).with_name("blackwell_gemm.py").read_text()


def mutant(mutation: Mutation, group: int) -> str:
    """The kernel's text with the defect, made in the function that writes it."""
    old, new = mutation.old, mutation.new
    if "expect_tx_bytes" in old:
        old = "shared::cluster.b64 _, [%lead], {stage};"
        new = old.replace("{stage}", "{stage - 16}" if new == "expect_less" else "{stage + 16}")
    if new.startswith("{again}"):
        again = "  tcgen05.alloc.{cg}.sync.aligned.shared::cta.b32 [%slot], 32;\n"
        new = again + "  tcgen05.fence::before_thread_sync;\nALLOCATED"
    assert SOURCE.count(old) >= 1, f"{mutation.name}: the kernel has no {old!r}"
    scope: dict[str, object] = {}
    exec(compile(SOURCE.replace(old, new, mutation.count), "mutant", "exec"), scope)
    return scope["gemm_text"](N, STAGES, group)  # type: ignore[operator, no-any-return]


@pytest.mark.parametrize(("mutation", "group"), [(m, g) for m in MUTATIONS for g in m.groups], ids=str)
def test_mutation(mutation: Mutation, group: int) -> None:
    """The defect is found by checking, not merely by a wrong result."""
    text = mutant(mutation, group)
    try:
        _, report = launch(text, group)
        said = "\n".join(str(finding) for finding in report.findings)
    except EmulatorError as error:
        said = str(error)
    assert re.search(mutation.message, said), said or "nothing was found"


def test_a_commit_still_on_its_way() -> None:
    """A commit reaches another CTA when it likes: one that ends without having waited for it is found in any order."""
    drain = SOURCE[SOURCE.index("  mov.u32 %i, 0;\nDRAIN:") : SOURCE.index("  @%p0 bra DRAIN;\n")]
    text = mutant(Mutation("no drain", f"{drain}  @%p0 bra DRAIN;\n", "", ""), 2)
    for seed in range(8):
        right, report = launch(text, 2, seed=seed, schedule=("adversarial", "random")[seed % 2])
        assert right
        (finding,) = report.findings
        words = "ends before any of its threads has seen a tcgen05.commit of another CTA arrive on an mbarrier"
        assert words in finding.message


def test_a_commit_still_on_its_way_in_one_cta() -> None:
    """In a CTA of its own that is remarked on, in any order: compilers leave so, and nothing is known to go wrong."""
    drain = SOURCE[SOURCE.index("  mov.u32 %i, 0;\nDRAIN:") : SOURCE.index("  @%p0 bra DRAIN;\n")]
    text = mutant(Mutation("no drain", f"{drain}  @%p0 bra DRAIN;\n", "", ""), 1)
    for seed in range(8):
        right, report = launch(text, 1, seed=seed, schedule=("adversarial", "random")[seed % 2])
        assert right
        assert report.clean
        (remark,) = report.remarks
        assert "a CTA ends before any of its threads has seen a tcgen05.commit arrive on an mbarrier" in remark.message
        assert "nothing found\n  1 remarked:\n  protocol: a CTA ends" in str(report)
    assert not launch(gemm_text(N, STAGES, 1), 1)[1].remarks
