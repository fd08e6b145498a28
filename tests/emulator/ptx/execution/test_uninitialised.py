"""Reads of shared memory, and of accumulators, that nothing wrote are findings, by name."""

from __future__ import annotations

import numpy as np
from gemm_text import gemm_text
from test_gemm import run

from tilekit.emulator import Device

HEADER = ".version 8.0\n.target sm_90a\n.address_size 64\n"


def test_load_of_fresh_shared_memory() -> None:
    """One lane's slot was never written: one finding, which names the array of the annotation."""
    text = f"""{HEADER}.extern .shared .align 16 .b8 d[];
.visible .entry k(.param .u64 out) {{
  //@shared scratch offset=0 size=128 kind=scratch
  .reg .b32 %t, %a, %v; .reg .pred %p; .reg .b64 %o, %w;
  mov.u32 %t, %tid.x; mov.u32 %a, d; mad.lo.u32 %a, %t, 4, %a;
  setp.ne.u32 %p, %t, 5; @%p st.shared.u32 [%a], %t;
  ld.shared.u32 %v, [%a];
  ld.param.u64 %o, [out]; mul.wide.u32 %w, %t, 4; add.s64 %o, %o, %w; st.global.u32 [%o], %v;
  ret;
}}"""
    device = Device()
    report = device.load(text)["k"].launch(1, 32, [np.zeros(32, np.uint32)], shared_bytes=128)
    assert [finding.kind for finding in report.findings] == ["uninitialised"]
    assert "scratch" in report.findings[0].message
    assert "ld.shared.u32" in str(report.findings[0])


def test_written_memory_is_clean() -> None:
    """The GEMM reads only what TMA has written."""
    assert run(gemm_text(), 64, 64, 128)[2].clean


def test_wgmma_operand_that_no_copy_filled() -> None:
    """A descriptor that points past the tiles of the ring reads memory that no thread wrote."""
    text = gemm_text().replace("add.u32 %a, %a, 512;", "add.u32 %a, %a, 1536;")
    _, _, report = run(text, 64, 64, 64)
    assert any("wgmma's B reads" in finding.message for finding in report.findings)


def test_wgmma_onto_accumulators_that_nothing_wrote() -> None:
    """The GEMM's first product adds to registers as they were made: one finding, which names one of them."""
    text = gemm_text().replace("setp.ne.u32 %more, %k, 0;", "setp.eq.u32 %more, 0, 0;")
    assert text != gemm_text()
    found, _, report = run(text, 64, 64, 128)
    assert [finding.kind for finding in report.findings] == ["uninitialised"]
    assert "wgmma adds to %d0, which nothing has written" in report.findings[0].message
    assert np.isnan(found.astype(np.float32)).all()
