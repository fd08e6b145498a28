"""What the runtime's tests share: a small kernel, and a cache of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

SMALL_KERNEL = """\
.version 8.0
.target sm_90a
.address_size 64
.shared .align 16 .b8 scratch[256];
.visible .entry small(.param .u64 out, .param .u32 value)
.maxntid 384
.minnctapersm 1
{
  .reg .u64 %address;
  .reg .u32 %v, %s;
  setmaxnreg.dec.sync.aligned.u32 24;
  ld.param.u64 %address, [out];
  ld.param.u32 %v, [value];
  bar.sync 1, 384;
  mov.u32 %s, scratch;
  st.shared.u32 [%s], %v;
  st.global.u32 [%address], %v;  //@ store Storer.store tile_io/store.py:12
  ret;
}
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep every test out of the user's cache."""
    monkeypatch.setenv("TILEKIT_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def small_kernel() -> str:
    """PTX of one entry, `small(u64 out, u32 value)`, which writes the value; 384 threads a CTA."""
    return SMALL_KERNEL
