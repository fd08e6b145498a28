"""The bytes of an mbarrier, before and after they are one: its operations write them in the generic proxy."""

from __future__ import annotations

import numpy as np
import pytest

from tilekit.emulator import BarrierFault, Device, LaunchReport, RaceError

FENCE = "fence.proxy.async.shared::cta;"
COPY = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%s], [%in], 128, [%full];"
UNFENCED = r"missing edge: no fence\.proxy\.async by warp 0 between its generic write and the release that orders it"


def kernel(before: str, after: str) -> str:
    """Three warps; `%first` is thread 0's predicate and `%second` thread 32's; a barrier at %full, others to be made.

    A copy completes on %full, whose phase 0 all wait for between the two parts; 128 bytes at %s are stored at the end.
    """
    return f"""
.version 8.6
.target sm_90a
.address_size 64
.extern .shared .align 128 .b8 smem[];
.visible .entry probe(.param .u64 in, .param .u64 out) {{
  .reg .b64 %in, %out, %wide; .reg .b32 %s, %full, %thread, %v, %at; .reg .pred %first, %second, %third, %some, %done;
  mov.u32 %s, smem;
  add.u32 %full, %s, 256;
  mov.u32 %thread, %tid.x;
  ld.param.u64 %in, [in];
  ld.param.u64 %out, [out];
  setp.eq.u32 %first, %thread, 0;
  setp.eq.u32 %second, %thread, 32;
  setp.eq.u32 %third, %thread, 64;
  @%first mbarrier.init.shared::cta.b64 [%full], 1;
  bar.sync 0;
  @%second mbarrier.arrive.expect_tx.shared::cta.b64 _, [%full], 128;
{before}
POLL:
  mbarrier.try_wait.parity.shared::cta.b64 %done, [%full], 0;
  @!%done bra POLL;
{after}
  setp.lt.u32 %some, %thread, 32;
  shl.b32 %v, %thread, 2;
  cvt.u64.u32 %wide, %v;
  add.u64 %out, %out, %wide;
  add.u32 %at, %s, %v;
  @%some ld.shared.b32 %v, [%at];
  @%some st.global.b32 [%out], %v;
  ret;
}}
"""


def launch(text: str, seed: int = 0) -> LaunchReport:
    """One CTA."""
    device = Device("sm_90a", seed=seed)
    x, out = np.arange(32, dtype=np.int32), np.zeros(32, np.int32)
    return device.load(text)["probe"].launch(1, 96, [x, out], shared_bytes=264)


def reused(*, end: str = "mbarrier.inval", mine: str = FENCE, meet: str = "bar.sync 0;", yours: str = "") -> str:
    """Thread 0 makes a barrier at %s, ends its life, and thread 32 has a copy brought there.

    `mine` is executed by thread 0 behind that, `yours` by thread 32 before the copy.
    """
    gone = f"  @%first {end}.shared::cta.b64 [%s];\n" if end else ""
    return kernel(
        f"  @%first mbarrier.init.shared::cta.b64 [%s], 1;\n{gone}  {mine and '@%first ' + mine}\n  {meet}\n"
        f"  {yours and '@%second ' + yours}\n  @%second {COPY}",
        "",
    )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("fences", [{}, {"mine": "", "yours": FENCE}, {"mine": "fence.proxy.async;"}], ids=str)
def test_reused_behind_a_fence(fences: dict[str, str], seed: int) -> None:
    """A barrier's bytes may be copied over once it is invalid, behind a proxy fence on the way there."""
    assert launch(reused(**fences), seed).clean


@pytest.mark.parametrize("instead", ["", "fence.acq_rel.cta;", "fence.mbarrier_init.release.cluster;"])
@pytest.mark.parametrize("seed", range(3))
def test_reused_without_a_proxy_fence(instead: str, seed: int) -> None:
    """`mbarrier.inval` writes in the generic proxy: a barrier orders it, and a copy needs a proxy fence besides."""
    with pytest.raises(RaceError, match=UNFENCED) as caught:
        launch(reused(mine=instead), seed)
    said = str(caught.value)
    assert "race: shared memory of CTA 0, bytes 0x400..0x408" in said
    assert "mbarrier.inval.shared::cta.b64 [%s]" in said
    assert "write by bulk copy issued by warp 1" in said


def test_fence_before_the_end_of_the_barrier() -> None:
    """A proxy fence covers what stands before it."""
    early = reused(mine="").replace("@%first mbarrier.inval", f"@%first {FENCE}\n  @%first mbarrier.inval")
    with pytest.raises(RaceError, match=UNFENCED):
        launch(early)


def test_fence_by_a_bystander() -> None:
    """A proxy fence of a warp that knows nothing of the barrier's end covers nothing of it."""
    with pytest.raises(RaceError, match=UNFENCED):
        launch(reused(mine="", meet=f"@%third {FENCE}\n  bar.sync 0;"))


def test_reused_without_a_barrier() -> None:
    """Without a barrier of the CTA the copy is not ordered behind the end of the mbarrier."""
    with pytest.raises((RaceError, BarrierFault), match=r"missing edge: |its bytes are overwritten"):
        launch(reused(meet=""))


@pytest.mark.parametrize("mine", ["", FENCE])
def test_copy_over_a_live_barrier(mine: str) -> None:
    """No fence makes it right to copy over a barrier that is live."""
    with pytest.raises(BarrierFault, match="its bytes are overwritten by a write to"):
        launch(reused(end="", mine=mine))


def test_made_where_a_copy_has_landed() -> None:
    """Memory that a copy brought becomes a barrier behind the wait for it: completion needs no proxy fence."""
    assert launch(
        kernel(f"  @%second {COPY}", "").replace(
            "[%out], %v;",
            "[%out], %v;\n  bar.sync 0;\n"
            "  @%first mbarrier.init.shared::cta.b64 [%s], 1;\n  @%first mbarrier.inval.shared::cta.b64 [%s];",
        )
    ).clean


@pytest.mark.parametrize("seed", range(3))
def test_made_before_the_copy_has_landed(seed: int) -> None:
    """A barrier initialised where a copy is under way is a race, or a copy over a live barrier."""
    make = "  @%first mbarrier.init.shared::cta.b64 [%s], 1;\n  @%first mbarrier.inval.shared::cta.b64 [%s];"
    with pytest.raises((RaceError, BarrierFault), match=r"missing edge: |its bytes are overwritten"):
        launch(kernel(f"  @%second {COPY}\n{make}", ""), seed)


@pytest.mark.parametrize(("wait", "clean"), [("cp.async.bulk.wait_group.read 0;", True), ("", False)])
def test_made_where_a_store_reads(wait: str, clean: bool) -> None:
    """Before memory becomes a barrier, the bulk stores that read it must have done so."""
    store = "cp.async.bulk.global.shared::cta.bulk_group [%out], [%s], 128;\n  cp.async.bulk.commit_group;"
    text = kernel(
        f"  @%second {COPY}",
        f"  setp.ne.u32 %some, %thread, 32;\n  @%some bra MEET;\n  {store}\n  {wait}\nMEET:\n  bar.sync 0;\n"
        "  @%first mbarrier.init.shared::cta.b64 [%s], 1;\n  @%first mbarrier.inval.shared::cta.b64 [%s];\n"
        "  setp.ne.u32 %some, %thread, 32;\n  @%some ret;\n  cp.async.bulk.wait_group 0;\n  ret;",
    )
    if clean:
        assert launch(text).clean
    else:
        with pytest.raises(RaceError, match="read by TMA store issued by warp 1"):
            launch(text)


@pytest.mark.parametrize(("meet", "clean"), [("bar.sync 0;", True), ("", False)])
def test_made_where_others_read(meet: str, clean: bool) -> None:
    """Before memory becomes a barrier, the threads that read it must have met the one that makes it."""
    text = kernel(
        f"  @%second {COPY}",
        f"  @%third ld.shared.b32 %v, [%s];\n  {meet}\n  @%first mbarrier.init.shared::cta.b64 [%s], 1;\n"
        "  @%first mbarrier.inval.shared::cta.b64 [%s];\n  ret;",
    )
    if clean:
        assert launch(text).clean
    else:
        with pytest.raises(RaceError, match="read by warp 2"):
            launch(text)
