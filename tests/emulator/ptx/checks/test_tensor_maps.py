"""Tensor maps that a kernel writes: what must lie between the write and a copy that uses the map, and what is said."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from tilekit.emulator import (
    Device,
    LaunchReport,
    MemoryFault,
    ProtocolError,
    PtxSyntaxError,
    RaceError,
    UnsupportedInstruction,
)

ROWS, COLUMNS = 8, 32
TILE = ROWS * COLUMNS * 4
RELEASE = "fence.proxy.tensormap::generic.release"
ACQUIRE = "fence.proxy.tensormap::generic.acquire"
BEHIND_THE_WRITE = rf"missing edge: no {RELEASE} behind the write of warp 0"

FROM_PARAMETER = "\n".join(
    f"  ld.param.b64 %word, [model+{at}]; st.global.b64 [%map+{at}], %word;" for at in range(0, 128, 8)
)
INTO_SHARED = "\n".join(
    f"  ld.param.b64 %word, [model+{at}]; st.shared.b64 [%own+{at}], %word;" for at in range(0, 128, 8)
)
WRITES = {
    "st.global": FROM_PARAMETER,
    "tensormap.replace": f"{FROM_PARAMETER}\n  tensormap.replace.tile.global_address.global.b1024.b64 [%map], %x;",
    "cp.async.bulk": f"""{INTO_SHARED}
  tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%own], %x;
  fence.proxy.async.shared::cta;
  cp.async.bulk.global.shared::cta.bulk_group [%map], [%own], 128;
  cp.async.bulk.commit_group;
  cp.async.bulk.wait_group 0;""",
}
"""How thread 0 writes a map to global memory; the fence that releases it comes behind."""
COPIED = f"""
  setp.ge.u32 %q, %thread, 32;
  @%q bra WRITTEN;
  @%not0 bra COPY;
{INTO_SHARED}
  tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%own], %x;
COPY:
  bar.warp.sync 0xffffffff;
  tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.cta.sync.aligned [%map], [%own], 128;
WRITTEN:
"""
"""Warp 0 builds the map in shared memory and copies it."""


def by_thread_0(write: str, release: str = f"{RELEASE}.cta;") -> str:
    """Thread 0 of each CTA writes its map and releases it."""
    return f"  @%not0 bra WRITTEN;\n{write}\n  {release}\nWRITTEN:\n"


def kernel(write: str, meet: str = "bar.sync 0;", acquire: str = f"{ACQUIRE}.cta [%map], 128;", after: str = "") -> str:
    """Warps 0 and 1 of a CTA: the map is written, all meet, thread 32 acquires it and loads the tile that it describes.

    `after` stands between the acquire and the load, for all threads.
    """
    return f"""
.version 8.3
.target sm_90a
.address_size 64
.extern .shared .align 128 .b8 smem[];
.visible .entry probe(.param .align 64 .b8 model[128], .param .u64 maps, .param .u64 in, .param .u64 out,
                      .param .u64 flag)
{{
  .reg .b64 %map, %x, %out, %flag, %word, %wide; .reg .b32 %thread, %cta, %rank, %s, %own, %bar, %at, %v, %row;
  .reg .pred %not0, %not32, %q, %done;
  mov.u32 %s, smem;
  add.u32 %own, %s, {TILE};
  add.u32 %bar, %own, 128;
  mov.u32 %thread, %tid.x;
  mov.u32 %cta, %ctaid.x;
  mov.u32 %rank, %cluster_ctarank;
  setp.ne.u32 %not0, %thread, 0;
  setp.ne.u32 %not32, %thread, 32;
  ld.param.u64 %map, [maps];
  ld.param.u64 %x, [in];
  ld.param.u64 %out, [out];
  ld.param.u64 %flag, [flag];
  mul.wide.u32 %wide, %cta, 128;
  add.u64 %map, %map, %wide;
  mul.wide.u32 %wide, %cta, {TILE};
  add.u64 %out, %out, %wide;
  mul.lo.u32 %row, %cta, {ROWS};
  @%not0 bra READY;
  mbarrier.init.shared::cta.b64 [%bar], 1;
  fence.mbarrier_init.release.cluster;
READY:
  bar.sync 0;
{write}
  {meet}
  @%not32 bra ACQUIRED;
  {acquire}
ACQUIRED:
  {after}
  @%not32 bra POLL;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], {TILE};
  cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%s], [%map, {{0, %row}}], [%bar];
POLL:
  mbarrier.try_wait.parity.shared::cta.b64 %done, [%bar], 0;
  @!%done bra POLL;
  mov.u32 %at, %thread;
STORE:
  shl.b32 %v, %at, 2;
  cvt.u64.u32 %wide, %v;
  add.u64 %wide, %wide, %out;
  add.u32 %v, %v, %s;
  ld.shared.b32 %v, [%v];
  st.global.b32 [%wide], %v;
  add.u32 %at, %at, 64;
  setp.lt.u32 %q, %at, {ROWS * COLUMNS};
  @%q bra STORE;
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
  ret;
}}
"""


def launch(text: str, *, ctas: int = 2, cluster: int = 1, seed: int = 0, given: bool = False) -> LaunchReport:
    """Copy a tile a CTA; with `given`, the maps lie in global memory from the start."""
    device = Device("sm_90a", seed=seed)
    x = np.arange(ctas * ROWS * COLUMNS, dtype=np.float32).reshape(-1, COLUMNS)
    source = device.buffer(x, "x")
    model = device.tensor_map_tiled(source, box=(COLUMNS, ROWS))
    room = ctas + 4
    maps = device.buffer(np.frombuffer(bytes(model) * room if given else bytes(128 * room), np.uint8).copy(), "maps")
    out, flag = device.buffer(np.zeros_like(x), "out"), device.buffer(np.zeros(1, np.uint32), "flag")
    report = device.load(text)["probe"].launch(
        ctas, 64, [model, maps, source, out, flag], cluster=cluster, shared_bytes=TILE + 136
    )
    np.testing.assert_array_equal(out.read(), x)
    return report


MEET_IN_CLUSTER = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
FIRST_OF_CLUSTER = (
    "  shr.u32 %v, %cta, 1; mul.wide.u32 %wide, %v, 256; ld.param.u64 %map, [maps]; add.u64 %map, %map, %wide;"
)


def in_cluster(release: str = "cluster", acquire: str = "cluster") -> str:
    """CTA 0 of a cluster of two writes one map for both."""
    write = f"{FIRST_OF_CLUSTER}\n  setp.ne.or.u32 %not0, %rank, 0, %not0;\n"
    write += by_thread_0(WRITES["st.global"], f"{RELEASE}.{release};")
    return kernel(write, MEET_IN_CLUSTER, f"{ACQUIRE}.{acquire} [%map], 128;")


def in_grid(release: str = "gpu", acquire: str = "gpu", flag: str = "st.release.gpu.global") -> str:
    """CTA 0 of the grid writes one map for all and sets a flag, for which thread 32 of each waits."""
    write = "  ld.param.u64 %map, [maps];\n  setp.ne.or.u32 %not0, %cta, 0, %not0;\n"
    write += by_thread_0(WRITES["st.global"], f"{RELEASE}.{release};\n  {flag}.b32 [%flag], 1;")
    wait = "SPIN:\n  ld.acquire.gpu.global.b32 %v, [%flag]; setp.eq.u32 %q, %v, 0;\n  @%q bra SPIN;\n"
    return kernel(write, acquire=f"{wait}  {ACQUIRE}.{acquire} [%map], 128;")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("write", WRITES)
def test_released_and_acquired(write: str, seed: int) -> None:
    """However it was written, a map that was released and acquired may be used."""
    assert launch(kernel(by_thread_0(WRITES[write])), seed=seed).clean


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("text", "cluster"),
    [
        pytest.param(kernel(COPIED), 1, id="cp_fenceproxy"),
        pytest.param(in_cluster(), 2, id="cluster"),
        pytest.param(in_cluster("gpu", "sys"), 2, id="cluster, wider"),
        pytest.param(in_grid(), 1, id="grid"),
        pytest.param(in_grid("sys", "gpu", "st.relaxed.gpu.global"), 1, id="the release makes a relaxed store one"),
    ],
)
def test_passed_on(text: str, cluster: int, seed: int) -> None:
    """A map may be made by the fused copy, or by another CTA of the cluster or grid, with scopes that reach it."""
    assert launch(text, ctas=4, cluster=cluster, seed=seed).clean


@pytest.mark.parametrize(
    ("who", "after"),
    [
        pytest.param("%thread, 0", "bar.sync 0;", id="barrier"),
        pytest.param("%thread, 40", "bar.warp.sync 0xffffffff;", id="lanes"),
    ],
)
def test_acquired_for_others(who: str, after: str) -> None:
    """Another warp of the CTA, or another lane, may acquire where a barrier stands between that and the copy."""
    fence = f"  setp.ne.u32 %q, {who};\n  @!%q {ACQUIRE}.cta [%map], 128;\n  {after}"
    assert launch(kernel(by_thread_0(WRITES["st.global"]), acquire="", after=fence)).clean
    with pytest.raises(RaceError, match=rf"nothing orders warp 1 behind the {ACQUIRE} of warp|no {ACQUIRE} of these"):
        launch(kernel(by_thread_0(WRITES["st.global"]), acquire="", after=fence.replace(after, "")))


def test_report() -> None:
    """The report names the map, who wrote it, who uses it, the edge that is missing and what would add it."""
    with pytest.raises(RaceError) as caught:
        launch(kernel(by_thread_0(WRITES["st.global"]), acquire=""))
    said = str(caught.value).splitlines()
    assert said[0] in ("race: maps+0x0..0x80", "race: maps+0x80..0x100")
    assert re.match(r"  write by warp 0 of CTA 0, cluster \d, at line \d+: st\.global\.b64 \[%map", said[3])
    assert re.match(r"  read by warp 1 of CTA 0, cluster \d, at line \d+: cp\.async\.bulk\.tensor\.2d", said[4])
    assert said[5] == f"  missing edge: no {ACQUIRE} of these 128 bytes by a thread of CTA 0"
    assert f"each CTA that uses the map must execute {ACQUIRE}.cta [map], 128 before its copies" in said[6]


@pytest.mark.parametrize("write", WRITES)
def test_without_any_fence(write: str) -> None:
    """A barrier alone orders the write, yet does not hand the map over."""
    with pytest.raises(RaceError, match=rf"{BEHIND_THE_WRITE}, and no {ACQUIRE} of it by CTA 0 behind that"):
        launch(kernel(by_thread_0(WRITES[write], ""), acquire=""))


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize(
    "instead", ["", "fence.acq_rel.gpu;", "fence.sc.sys;", "fence.proxy.async;", "fence.proxy.alias;"]
)
def test_release_missing(write: str, instead: str) -> None:
    """Neither a fence of the generic proxy nor one of another proxy releases a map."""
    with pytest.raises(RaceError, match=BEHIND_THE_WRITE):
        launch(kernel(by_thread_0(WRITES[write], instead)))


@pytest.mark.parametrize("text", [kernel(by_thread_0(WRITES["st.global"])), kernel(COPIED), in_cluster(), in_grid()])
@pytest.mark.parametrize("instead", ["", "fence.acq_rel.gpu;", "fence.proxy.async;", f"{RELEASE}.gpu;"])
def test_acquire_missing(text: str, instead: str) -> None:
    """What was released must still be acquired, by any writer."""
    fence = next(line.strip() for line in text.splitlines() if ACQUIRE in line)
    with pytest.raises(RaceError, match=rf"missing edge: no {ACQUIRE} of these 128 bytes by a thread of CTA"):
        launch(text.replace(fence, instead), cluster=2 if text == in_cluster() else 1)


def test_release_before_the_write() -> None:
    """A release hands over what stands before it."""
    write = f"  @!%not0 {RELEASE}.cta;\n" + by_thread_0(WRITES["st.global"], "")
    with pytest.raises(RaceError, match=BEHIND_THE_WRITE):
        launch(kernel(write))


def test_acquire_before_the_write() -> None:
    """An acquire takes over what was written before it."""
    write = f"  @!%not32 {ACQUIRE}.cta [%map], 128;\n  bar.sync 0;\n" + by_thread_0(WRITES["st.global"])
    with pytest.raises(RaceError, match=rf"the {ACQUIRE} at line \d+ comes before the write, not behind it"):
        launch(kernel(write, acquire=""))


def test_acquire_before_the_release() -> None:
    """An acquire that stands between the write and its release is worth nothing."""
    acquire = f"{ACQUIRE}.cta [%map], 128;"
    late = f"  @!%not0 {RELEASE}.cta;\n  bar.sync 0;\n"
    with pytest.raises(RaceError, match=rf"the {ACQUIRE} at line \d+ is not ordered behind the release at line \d+"):
        launch(kernel(by_thread_0(WRITES["st.global"], ""), acquire=acquire, after="bar.sync 0;\n" + late))


def test_written_again() -> None:
    """What was acquired is the map as it was: a second write must be handed over again."""
    again = (
        "bar.sync 0;\n  @!%not0 tensormap.replace.tile.global_address.global.b1024.b64 [%map], %x;\n{}\n  bar.sync 0;"
    )
    text = kernel(by_thread_0(WRITES["st.global"]), after=again)
    with pytest.raises(RaceError, match=BEHIND_THE_WRITE):
        launch(text.replace("{}", ""))
    released = text.replace("{}", f"@!%not0 {RELEASE}.cta;")
    with pytest.raises(RaceError, match=rf"the {ACQUIRE} at line \d+ comes before the write|no {ACQUIRE} of these"):
        launch(released)
    fence = f"@!%not32 {ACQUIRE}.cta [%map], 128;\n"
    assert launch(
        released.replace("POLL:\n", "POLL:\n", 1).replace("  @%not32 bra POLL;", fence + "@%not32 bra POLL;")
    ).clean


@pytest.mark.parametrize("shift", [64, 128, -128])
def test_acquire_of_other_bytes(shift: int) -> None:
    """An acquire takes over the 128 bytes that it names."""
    acquire = f"{ACQUIRE}.cta [%map+{shift}], 128;"
    text = kernel("  add.u64 %map, %map, 128;\n" + by_thread_0(WRITES["st.global"]), acquire=acquire)
    with pytest.raises(RaceError, match=rf"missing edge: no {ACQUIRE} of these 128 bytes by a thread of CTA 0"):
        launch(text, ctas=4, given=True)


def test_copy_releases_its_own_bytes() -> None:
    """`tensormap.cp_fenceproxy` releases the map that it writes, and no other of the same thread."""
    other = by_thread_0(WRITES["st.global"], "").replace("WRITTEN", "OTHER")
    elsewhere = COPIED.replace("[%map], [%own]", "[%map+512], [%own]")
    with pytest.raises(RaceError, match=BEHIND_THE_WRITE):
        launch(kernel(other + elsewhere), ctas=8, given=False)


@pytest.mark.parametrize(("release", "acquire", "kind"), [("cta", "cluster", "release"), ("cluster", "cta", "acquire")])
def test_scope_too_narrow_in_a_cluster(release: str, acquire: str, kind: str) -> None:
    """Between CTAs of a cluster both scopes must be .cluster or wider."""
    with pytest.raises(
        RaceError, match=rf"the {kind} of the map at line \d+ has scope \.cta, which does not hold both"
    ):
        launch(in_cluster(release, acquire), cluster=2)


@pytest.mark.parametrize("narrow", ["cta", "cluster"])
@pytest.mark.parametrize("kind", ["release", "acquire"])
def test_scope_too_narrow_in_a_grid(kind: str, narrow: str) -> None:
    """Between clusters both scopes must be .gpu or wider, and the hint says so."""
    with pytest.raises(RaceError, match=rf"the {kind} of the map at line \d+ has scope \.{narrow}") as caught:
        launch(in_grid(**{kind: narrow}))
    assert "give it .gpu" in str(caught.value)


def test_one_cta_does_not_acquire_for_another() -> None:
    """Each CTA acquires for itself, and is told so where another one has."""
    text = in_cluster().replace(f"{ACQUIRE}.cluster", f"setp.eq.u32 %q, %rank, 0;\n  @%q {ACQUIRE}.cluster")
    text = text.replace("ACQUIRED:\n", f"ACQUIRED:\n  {MEET_IN_CLUSTER}\n")
    with pytest.raises(
        RaceError, match=r"by a thread of CTA 1: the one of warp 1 of CTA 0, cluster 0, at line \d+ holds"
    ):
        launch(text, cluster=2)


def test_release_by_another_lane() -> None:
    """A lane releases what the others wrote only after they have met."""
    write = by_thread_0(WRITES["st.global"], "") + "{}\n  setp.ne.u32 %q, %thread, 1;\n  @!%q " + f"{RELEASE}.cta;\n"
    assert launch(kernel(write.format("  bar.warp.sync 0xffffffff;"))).clean
    with pytest.raises(RaceError, match=BEHIND_THE_WRITE):
        launch(kernel(write.format("")))


def test_not_ordered_at_all() -> None:
    """A map that is written with no barrier before its use is a plain race."""
    with pytest.raises(RaceError, match=r"write by warp 0 .*\n.*read by warp 1 .*\n  missing edge: no|read by warp 1"):
        launch(kernel(by_thread_0(WRITES["st.global"]), meet=""), given=True)


def test_a_map_among_the_parameters() -> None:
    """What the launch brought as a parameter needs no fence, and must not be acquired."""
    text = kernel("", acquire="").replace("ACQUIRED:\n", "ACQUIRED:\n  cvta.param.u64 %map, model;\n")
    assert launch(text).clean
    with pytest.raises(ProtocolError, match="in parameters: only of global memory is it defined"):
        launch(text.replace("POLL:", f"  {ACQUIRE}.gpu [%map], 128;\nPOLL:", 1))


def test_a_map_in_shared_memory() -> None:
    """Copies do not read maps from shared memory."""
    text = kernel(COPIED).replace(
        "ACQUIRED:\n", "ACQUIRED:\n  cvt.u64.u32 %map, %own;\n  cvta.shared.u64 %map, %map;\n"
    )
    with pytest.raises(MemoryFault, match=r"lies in shared memory.*, not among parameters"):
        launch(text)


def test_prefetch_changes_nothing() -> None:
    """A prefetch of the map before it is handed over is a hint, and no substitute for the fences."""
    prefetch = "  prefetch.tensormap [%map];\n"
    write = by_thread_0(WRITES["st.global"])
    assert launch(kernel(prefetch + write + prefetch)).clean
    with pytest.raises(RaceError, match=rf"no {ACQUIRE} of these 128 bytes"):
        launch(kernel(write, acquire=prefetch))


@pytest.mark.parametrize("size", ["64", "256"])
def test_size(size: str, assemble: Callable[[str], None]) -> None:
    """A map has 128 bytes: the text that says otherwise is refused, as ptxas does."""
    text = kernel(COPIED)
    assemble(text)
    for fence in ("[%map], 128;", "[%own], 128;"):
        with pytest.raises((UnsupportedInstruction, PtxSyntaxError), match="a tensor map has 128 bytes"):
            launch(text.replace(fence, fence.replace("128", size)))


def test_given_in_global_memory() -> None:
    """A map that lay in global memory before the launch must be acquired too; that it is not is a finding, no fault."""
    assert launch(kernel("", acquire=f"{ACQUIRE}.sys [%map], 128;"), given=True).clean
    report = launch(kernel("", acquire=""), given=True)
    finding, other = report.findings
    assert finding.kind == other.kind == "tensor-map"
    assert "is used as a tensor map by CTAs that did not acquire it" in finding.message
    assert "read by warp 1 of CTA 0, cluster " in finding.lines[1]
    assert f"execute {ACQUIRE}.sys [map], 128 before the copies" in finding.hint
