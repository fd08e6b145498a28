"""Every rule of tcgen05, tensor memory, CTA pairs and cluster launch control, broken where nothing else is.

docs/emulator-blackwell.md lists the rules, with the test of each; most stand in the modules beside this one.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from operands import descriptor
from tensor_kernel import run, text
from test_clc import kernel as clc_kernel

from tilekit.emulator import Deadlock, Device, EmulatorError, MemoryFault, ProtocolError, RaceError

START = "  cvt.u64.u32 %wide, %im; shr.u64 %wide, %wide, 4;\n"
IDESC = 1 << 4 | 1 << 7 | 1 << 10 | 32 // 8 << 17 | 128 // 16 << 24
"""bf16, 128 by 32."""
HALF = IDESC - (128 // 16 << 24) + (64 // 16 << 24)
"""bf16, 64 by 32: D has 16 of every 32 lanes."""
PAIR = 1 << 4 | 1 << 7 | 1 << 10 | 32 // 8 << 17 | 256 // 16 << 24
"""bf16, 256 by 32 of a pair."""


def operands(start: int = 0) -> str:
    """Descriptors of A and of B, both at the image's start, rows of 64 bytes."""
    plain = descriptor(start, "64B", 16, 512)
    return START + f"  mov.u64 %da, {plain:#x}; add.s64 %da, %da, %wide; mov.u64 %db, %da;\n"


def mma(group: int = 1, d: str = "%tm", idesc: int | None = None) -> str:
    """One product, with its operands."""
    bits = idesc if idesc is not None else IDESC if group == 1 else PAIR
    return operands() + f"  tcgen05.mma.cta_group::{group}.kind::f16 [{d}], %da, %db, {bits:#x}, 0;"


def framed(body: str, **options: Any) -> str:
    """The frame around a body, for the columns of one product; without a product, around none."""
    return text(body, columns=32 if "mma" in body else 0, **options)


def launch(source: str, *, group: int = 1, cluster: int | None = None, seed: int = 0, **options: Any) -> Any:
    """Launch the frame's kernel on zeros; the report."""
    count = cluster or group
    arrays = [np.zeros((count, 8192), np.uint8), np.zeros((count, 128, 64), np.uint32)]
    arguments: list[Any] = [*arrays, np.zeros((count, 128, 64), np.uint32), np.uint32(8192)]
    kernel = Device("sm_100a", seed=seed, **options).load(source)["probe"]
    return kernel.launch(count, 128, arguments, cluster=(count, 1, 1), shared_bytes=1024 + 8192, step_budget=20_000)


def test_the_frame_is_clean() -> None:
    """What the defects below are planted in has none."""
    assert launch(framed(mma())).clean
    assert launch(framed(mma(2), group=2), group=2).clean


# -- tensor memory ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (mma(d="%r0").replace("  tcgen05.mma", "  add.u32 %r0, %tm, 48;\n  tcgen05.mma"), 64),
        (operands() + "  add.u32 %r0, %tm, 60; tcgen05.cp.cta_group::1.128x256b [%r0], %da;", 64),
        ("  add.u32 %r0, %tm, 60; tcgen05.shift.cta_group::1.down [%r0];", 64),
        (operands() + f"  tcgen05.mma.cta_group::1.kind::f16 [%tm], [%tm+60], %db, {IDESC:#x}, 0;", 64),
    ],
    ids=["mma", "cp", "shift", "A in tensor memory"],
)  # fmt: skip
def test_columns_that_are_not_allocated(body: str, what: int) -> None:
    """The tensor core, too, stays inside what was allocated."""
    with pytest.raises(MemoryFault, match=rf"column {what} is not allocated"):
        launch(framed(body, allocated=64))


@pytest.mark.parametrize(
    ("body", "error", "message"),
    [
        (operands() + "  add.u32 %r0, %tm, 0x200000; tcgen05.cp.cta_group::1.128x256b [%r0], %da;", ProtocolError,
         "tcgen05.cp to lane 32; legal: 0"),
        (operands() + "  add.u32 %r0, %tm, 0x100000; tcgen05.cp.cta_group::1.128x256b [%r0], %da;", ProtocolError,
         r"tcgen05.cp to lane 16; legal: 0\n"),
        (operands() + "  add.u32 %r0, %tm, 0x200000; tcgen05.cp.cta_group::1.4x256b [%r0], %da;", ProtocolError,
         r"tcgen05.cp to lane 32; legal: 0 to 31"),
        ("  add.u32 %r0, %tm, 0x100000; tcgen05.shift.cta_group::1.down [%r0];", ProtocolError,
         "tcgen05.shift at lane 16: must be 0, 32, 64 or 96; nearest 0"),
        ("  add.u32 %r0, %tm, 0x800000; tcgen05.shift.cta_group::1.down [%r0];", ProtocolError,
         "tcgen05.shift at lane 128: must be 0, 32, 64 or 96; nearest 96"),
        (mma(d="%r0").replace("  tcgen05.mma", "  add.u32 %r0, %tm, 0x200000;\n  tcgen05.mma"), ProtocolError,
         "of D has lane 32; legal: 0"),
        (operands().replace("mov.u64 %db", "and.b64 %da, %da, 0xFFFF3FFFFFFFFFFF; mov.u64 %db")
         + "  tcgen05.cp.cta_group::1.128x256b [%tm], %da;", ProtocolError, r"descriptor of tcgen05.cp: .*version"),
        (operands() + "  add.u32 %r0, %tm, 0x100028;\n"
         + f"  tcgen05.mma.cta_group::1.kind::f16 [%tm], [%r0], %db, {HALF:#x}, 0;", ProtocolError,
         "of A has lane 16, that of D has lane 0"),
        (operands() + "  add.u32 %r0, %tm, 0x28; add.u32 %r1, %tm, 0x100000;\n"
         + f"  tcgen05.mma.cta_group::1.kind::f16 [%r1], [%r0], %db, {HALF:#x}, 0;", ProtocolError,
         "of A has lane 0, that of D has lane 16"),
        (operands() + "  add.u32 %r0, %tm, 0x200028;\n"
         + f"  tcgen05.mma.sp.cta_group::1.kind::f16 [%tm], %da, %db, [%r0], {IDESC | 4:#x}, 0;", ProtocolError,
         "of the metadata has lane 32; legal: 0"),
        (operands(0x30000) + f"  tcgen05.mma.cta_group::1.kind::f16 [%tm], %da, %db, {IDESC:#x}, 0;", MemoryFault,
         "reads B from .* beyond the end of shared memory of CTA 0"),
    ],
    ids=["cp: lane", "cp: a lane of the first 32", "cp of four rows: lane", "shift: lane", "shift: no such lane",
         "mma: lane", "cp: descriptor", "mma: lane of A", "mma: lane of D", "mma: lane of metadata",
         "mma: beyond shared memory"],
)  # fmt: skip
def test_places_that_an_instruction_does_not_take(body: str, error: type[EmulatorError], message: str) -> None:
    """Lanes and descriptors of the tensor core's instructions, and what lies behind shared memory."""
    with pytest.raises(error, match=message):
        launch(framed(body))


def test_f16_accumulators_fill_half_of_their_cells() -> None:
    """An f16 sum is the lower half of its cell; the upper half holds nothing that a kernel may rely on."""
    image = np.zeros(8192, np.uint8)
    f16 = IDESC & ~(1 << 4 | 1 << 7 | 1 << 10)
    cells, report = run(mma(idesc=f16), [image], columns=32)
    assert report.clean
    assert not (cells & 0xFFFF).any()
    assert ((cells >> 16) == 0xFFFF).all(), "not zero, as the sum is: a kernel that reads 32 bits sees NaN"


def test_a_load_that_was_not_waited_for() -> None:
    """A warp may not end while a load from tensor memory is on its way to its registers."""
    last = text("", columns=8, filled=8)
    place = last.rindex("  tcgen05.wait::ld.sync.aligned;")
    stores = last.index("  tcgen05.fence::before_thread_sync;", place)
    with pytest.raises(ProtocolError, match=r"exits with a wgmma or tcgen05.ld that it has not waited for"):
        launch(last[:place] + last[stores:])


def unfenced() -> str:
    """The frame as Triton writes: without any tcgen05 fence, which leaves order to the assembler."""
    fences = ("  tcgen05.fence::before_thread_sync;\n", "  tcgen05.fence::after_thread_sync;\n")
    found = text("", columns=8, filled=8)
    for fence in fences:
        found = found.replace(fence, "")
    return found


def test_a_load_that_was_not_waited_for_in_text_without_fences() -> None:
    """Also text that leaves registers to the assembler's tracking waits for its loads: at its end, or before."""
    source = unfenced()
    place = source.rindex("  tcgen05.wait::ld.sync.aligned;")
    without = source[:place] + source[place:].replace("  tcgen05.wait::ld.sync.aligned;\n", "", 1)
    with pytest.raises(ProtocolError, match=r"exits with a wgmma or tcgen05.ld that it has not waited for"):
        launch(without, check="protocol")
    with pytest.raises((ProtocolError, RaceError), match=r"tcgen05.wait::ld|has not waited for"):
        launch(without)
    assert launch(source).clean


def test_registers_before_a_late_wait_in_text_without_fences() -> None:
    """LLVM sinks the wait below uses of the registers: there it is late, and in text with fences it is a fault."""
    source = unfenced()
    wait = "  tcgen05.wait::ld.sync.aligned;\n"
    first, _, rest = source.rpartition(wait)
    last = rest.rindex("st.global.b32 [%out+28], %r7;\n") + len("st.global.b32 [%out+28], %r7;\n")
    assert launch(first + rest[:last] + wait + rest[last:]).clean
    fenced = text("", columns=8, filled=8)
    first, _, rest = fenced.rpartition(wait)
    last = rest.rindex("st.global.b32 [%out+28], %r7;\n") + len("st.global.b32 [%out+28], %r7;\n")
    with pytest.raises(ProtocolError, match=r"before tcgen05.wait::ld"):
        launch(first + rest[:last] + wait + rest[last:])


def test_a_commit_of_nothing() -> None:
    """The thread that commits must be the one that issued: another's commit tracks nothing, and is said to."""
    source = framed(mma())
    commit = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%bar];"
    other = f"""  setp.ne.u32 %p0, %warp, 1;
  @%p0 bra POLL;
  elect.sync _|%p1, 0xffffffff;
  @%p1 {commit}
POLL:"""
    moved = source.replace(f"  {commit}\nWAIT", "WAIT").replace("POLL:", other, 1)
    said = []
    for seed in range(6):
        try:
            said += [str(finding) for finding in launch(moved, seed=seed).findings]
        except EmulatorError as error:
            said.append(str(error))
    assert any("by a thread that has issued no mma, cp or shift: it tracks nothing" in words for words in said), said


# -- barriers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%s+16], 64;", "barrier: .* is left in the middle of phase 0"),
        ("  mbarrier.arrive.shared::cta.b64 _, [%s+16], 2;", "2 arrivals at once, where phase 0 needs 1 more of 1"),
        ("  mbarrier.inval.shared::cta.b64 [%s+16]; mbarrier.arrive.shared::cta.b64 _, [%s+16];", "no mbarrier"),
        ("  st.shared.b32 [%s+16], %r0;", "mbarrier"),
        ("  add.u32 %r0, %s, 20; mbarrier.init.shared::cta.b64 [%r0], 1;", "multiple of 8"),
    ],
    ids=["bytes that never come", "too many arrivals", "after inval", "overwritten", "misaligned"],
)
def test_barriers(body: str, message: str) -> None:
    """What an mbarrier goes through has an end in each case: a fault, or a finding when the CTA ends."""
    source = framed("  mbarrier.init.shared::cta.b64 [%s+16], 1;\n" + body + "\n" + mma())
    try:
        said = str(launch(source))
    except EmulatorError as error:
        said = str(error)
    assert re.search(message, said), said


def test_a_barrier_of_the_peer_cannot_be_waited_for() -> None:
    """mbarrier.try_wait takes the CTA's own barriers only."""
    peer = "  mapa.shared::cluster.u32 %r0, %bar, 1;\n"
    wait = peer + "  mbarrier.try_wait.parity.{}.b64 %p2, [%r0], 1;\n"
    with pytest.raises(MemoryFault, match=r"a wait for .* of CTA 1, from CTA 0"):
        launch(framed(wait.format("shared::cta") + mma(2), group=2), group=2)
    with pytest.raises(MemoryFault, match=r"an access with .shared::cta to .* of CTA 1, from CTA 0"):
        launch(framed(peer + "  mbarrier.arrive.shared::cta.b64 _, [%r0];\n" + mma(2), group=2), group=2)
    with pytest.raises(EmulatorError, match=r"try_wait.*shared::cluster|shared::cluster.*try_wait"):
        launch(framed(wait.format("shared::cluster") + mma(2), group=2), group=2)


# -- CTA pairs --------------------------------------------------------------------------------------------------------

ALLOC = "  tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%slot], 512;\n"


def test_a_pair_needs_a_peer() -> None:
    """In a cluster of one CTA, and in the last place of one of three, there is no pair."""
    for cluster in (1, 3):
        with pytest.raises(ProtocolError, match=rf"CTA \d of a cluster of {cluster} has no peer"):
            launch(framed("", group=2), cluster=cluster)


@pytest.mark.parametrize("differ", ["columns", "places"])
def test_a_pair_asks_for_the_same(differ: str) -> None:
    """Both CTAs allocate as many columns, to the same place in shared memory."""
    other = "  shl.b32 %r5, %rank, 3;\n  add.u32 %slot, %slot, %r5;\n" + ALLOC
    if differ == "columns":
        other = "  setp.eq.u32 %p5, %rank, 0;\n  selp.u32 %r5, 512, 256, %p5;\n" + ALLOC.replace("512;", "%r5;")
    source = framed("", group=2)
    assert ALLOC in source
    with pytest.raises(ProtocolError, match="ask for different column counts or destination offsets"):
        launch(source.replace(ALLOC, other), group=2)


def test_a_pair_allocates_together() -> None:
    """A CTA whose peer never allocates waits, and the report names the peer."""
    alone = ALLOC.replace("  tcgen05", "  setp.ne.u32 %p5, %rank, 0;\n  @%p5 bra ALLOCATED;\n  tcgen05")
    with pytest.raises(Deadlock, match=r"CTA 1, which has not executed the same tcgen05.alloc.cta_group::2"):
        launch(framed("", group=2).replace(ALLOC, alone), group=2)


def test_both_of_a_pair_deallocate() -> None:
    """A pair's columns are given back by both CTAs, each its own."""
    free = "  tcgen05.dealloc.cta_group::2.sync.aligned.b32 %tm, 512;\n"
    source = framed("", group=2)
    assert free in source
    alone = free.replace("  tcgen05", "  setp.ne.u32 %p5, %rank, 0;\n  @%p5 bra END;\n  tcgen05")
    with pytest.raises(ProtocolError, match="CTA 1 ends with tensor memory allocated: 512 at column 0"):
        launch(source.replace(free, alone), group=2)


def test_a_peer_that_ends_too_early() -> None:
    """The instructions of the leader work in the peer as well: it must not end before them, nor free its columns."""
    leaves = mma(2) + "\n"
    source = framed(leaves, group=2)
    early = "  setp.ne.u32 %p0, %warp, 0;\n  @%p0 bra WAIT;\n  setp.ne.u32 %p0, %rank, 0;\n"
    assert early in source
    gone = "  setp.ne.u32 %p6, %rank, 0;\n  @%p6 bra GONE;\n"
    free = "  tcgen05.dealloc.cta_group::2.sync.aligned.b32 %tm, 512;\n"
    end = f"GONE:\n  setp.ne.u32 %p0, %warp, 0;\n  @%p0 bra END;\n{free}END:"
    changed = source.replace(early, gone + early).replace("END:", "  bra END;\n" + end)
    said = set()
    for seed in range(8):
        try:
            launch(changed, group=2, seed=seed)
        except EmulatorError as error:
            said.add(str(error).splitlines()[0])
    assert any("CTA 1 exited before" in words or "of CTA 1: column" in words for words in said), said


def test_a_commit_to_an_address_outside_the_cluster() -> None:
    """A commit's barrier lies in shared memory of its cluster."""
    commit = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%bar];"
    source = framed(mma()).replace(f"  {commit}", f"  add.u32 %bar, %bar, 0x5000000;\n  {commit}")
    with pytest.raises(MemoryFault, match="is not in shared memory of this cluster"):
        launch(source)


# -- cluster launch control -------------------------------------------------------------------------------------------


def claim(source: str, grid: int = 8, *, cluster: int = 1, seed: int = 0, **options: Any) -> np.ndarray[Any, Any]:
    """Launch a kernel of `test_clc`: how often each tile was worked on."""
    counts = np.zeros(grid, np.uint32)
    Device("sm_100a", seed=seed, **options).load(source)["persistent"].launch(
        grid, 32, [counts, None], cluster=cluster, step_budget=200_000
    )
    return counts


def test_claims_come_in_order() -> None:
    """Clusters that have not started form one queue: one running cluster is given the others one after the other."""
    source = clc_kernel().replace("red.global.add.u32 [%at], 1;", "atom.global.add.u32 %r9, [%counts], 1;\n"
                                  "  @%p0 red.global.add.u32 [%at+64], %r9;")  # fmt: skip
    counts = np.zeros(16 + 8, np.uint32)
    Device("sm_100a", multiprocessors=1).load(source)["persistent"].launch(
        8, 32, [counts, None], shared_bytes=200_000, step_budget=200_000
    )
    assert counts[0] == 8
    assert counts[16:].tolist() == list(range(8))


def test_an_answer_read_too_early() -> None:
    """The answer is there when its barrier says so: a read before is a race."""
    source = clc_kernel()
    start, end = source.index("POLL:"), source.index("  xor.b32 %phase")
    with pytest.raises(EmulatorError, match=r"race: .*answer|race: shared memory"):
        claim(source[:start] + source[end:])


def test_the_refusal_names_no_cluster() -> None:
    """Which cluster an answer names that obtained none is undefined: who goes on with it goes astray."""
    source = clc_kernel(stop="@!%p1 bra LAST;").replace("DONE:", "LAST:\n  mov.u32 %phase, 7;\nDONE:")
    assert (claim(source) == 1).all()
    ignoring = clc_kernel(stop="").replace(
        "  bra TILE;", "  @%p1 bra TILE;\n  mul.wide.u32 %at, %x, 4;\n  add.s64 %at, %at, %counts;\n"
        "  red.global.add.u32 [%at], 1;", 1,
    )  # fmt: skip
    with pytest.raises(MemoryFault):
        claim(ignoring)


def test_an_answer_after_the_end() -> None:
    """A CTA that ends before the answer to its request is delivered is named."""
    source = clc_kernel()
    start, end = source.index("POLL:"), source.index("DONE:")
    with pytest.raises(ProtocolError, match=r"exited before the answer to clusterlaunchcontrol.try_cancel"):
        claim(source[:start] + source[end:])


def test_an_answer_to_a_peer_that_expects_nothing() -> None:
    """Every CTA of the cluster must expect the 16 bytes of an answer that is sent to all."""
    source = clc_kernel(2)
    expects = "@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 16;"
    assert expects in source
    only = "setp.eq.u32 %p4, %rank, 0;\n  and.pred %p4, %p4, %p0;\n  " + expects.replace("@%p0", "@%p4")
    with pytest.raises(Deadlock, match=r"16 bytes that arrived unannounced|waits for"):
        claim(source.replace(expects, only), cluster=2)


def test_every_lane_asks() -> None:
    """A request is made by each lane that executes it: more than one is an error."""
    source = clc_kernel()
    with pytest.raises(ProtocolError, match=r"try_cancel is executed by 32 lanes"):
        claim(source.replace("@%p2 clusterlaunchcontrol", "clusterlaunchcontrol"))


def test_an_answer_is_sixteen_aligned_bytes() -> None:
    """The place of an answer is a multiple of 16."""
    place = "mov.u32 %answer, answer;"
    source = clc_kernel().replace(place, place + "\n  add.u32 %answer, %answer, 8;")
    with pytest.raises(EmulatorError, match="16"):
        claim(source)
