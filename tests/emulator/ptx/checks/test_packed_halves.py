"""Sums of packed halves in a peer's shared memory, which ptxas compiles to integer sums, end with a finding."""

from __future__ import annotations

import numpy as np
import pytest

from tilekit.emulator import Device, LaunchReport

TEXT = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry sum(.param .u64 out_param) .reqnctapercluster 2 .maxntid 1 {
    .reg .b64 out;
    .reg .b32 s, far, rank, other, x;
    .shared .align 4 .b32 word;
    mov.u32 s, word;
    mov.u32 x, 0;
    st.shared.b32 [s], x;
    mov.u32 rank, %cluster_ctarank;
    xor.b32 other, rank, 1;
    mapa.shared::cluster.u32 far, s, other;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    mov.b32 x, 0x3c003c00;
    red.relaxed.cluster.shared::cluster.add.noftz.f16x2 [far], x;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    ld.shared.b32 x, [s];
    ld.param.u64 out, [out_param];
    st.global.b32 [out], x;
    ret;
}
"""


def launch(text: str) -> LaunchReport:
    """One cluster of two CTAs of one thread."""
    device = Device("sm_90a")
    return device.load(text)["sum"].launch(2, 1, [device.buffer(np.zeros(1, np.uint32))])


@pytest.mark.parametrize("kind", ["f16x2", "bf16x2"])
def test_in_a_peers_memory(kind: str) -> None:
    """One finding for the instruction, with its line and what to do."""
    report = launch(TEXT.replace("f16x2", kind))
    (finding,) = report.findings
    assert finding.kind == "packed-halves"
    assert finding.message.startswith(
        f"line 18 adds .{kind} in a peer's shared memory: ptxas adds the words as integers"
    )
    assert "atom.cas.b32" in finding.hint


@pytest.mark.parametrize("change", [("xor.b32 other, rank, 1", "mov.b32 other, rank"), ("add.noftz.f16x2", "add.u32")])
def test_elsewhere(change: tuple[str, str]) -> None:
    """The own CTA's memory, and other sums, are as they say."""
    assert launch(TEXT.replace(*change)).clean
