"""Addresses that leave their memory by either end, wrap, or lie in two memories: faults, and never another place."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from tilekit.emulator import Device, MemoryFault

TEXT = """
.version 8.6
.target sm_90a
.address_size 64
.extern .shared .align 128 .b8 smem[];
.visible .entry k(.param .u64 out_param) .maxntid 32 {{
    .reg .b64 %out, %at, %base, %peer, %row; .reg .b32 %s, %t, %x, %y<4>, %low, %r; .reg .pred %p, %last;
    .reg .b16 %both;
    .local .align 4 .b8 %mine[20];
    mov.u32 %s, smem;
    mov.u32 %t, %tid.x;
    ld.param.u64 %out, [out_param];
    mul.wide.u32 %at, %t, 4;
    add.s64 %at, %at, %out;
    mad.lo.u32 %x, %t, 4, %s;
    st.shared.b32 [%x], %t;
    mov.u32 %x, 0;
    cvt.u64.u32 %base, %s;
    cvta.shared.u64 %base, %base;
    setp.eq.u32 %last, %t, 7;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    {body}
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    st.global.b32 [%at], %x;
    ret;
}}
"""


def launch(body: str) -> npt.NDArray[np.uint32]:
    """What the threads store in ``%x``, of a cluster of two CTAs."""
    out = np.zeros(32, np.uint32)
    kernel = Device("sm_90a", check="protocol").load(TEXT.format(body=body))["k"]
    kernel.launch(2, 32, [out], shared_bytes=1024, cluster=(2, 1, 1))
    return out


def test_a_base_below_zero() -> None:
    """A 32-bit base and a constant add up modulo 2**32, whether the base is one value or each lane's own."""
    uniform = launch("sub.u32 %low, %s, 4096; ld.shared.b32 %x, [%low+4100];")
    np.testing.assert_array_equal(uniform, 1)
    lanes = launch("mad.lo.u32 %low, %t, 4, %s; sub.u32 %low, %low, 4096; ld.shared.b32 %x, [%low+4096];")
    np.testing.assert_array_equal(lanes, np.arange(32))


@pytest.mark.parametrize(
    "body",
    [
        "ld.shared.b32 %x, [%s+-1028];",
        "mad.lo.u32 %low, %t, 4, %s; ld.shared.b32 %x, [%low+-1028];",
        "mad.lo.u32 %low, %t, 4, %s; @%last sub.u32 %low, %low, 4096; ld.shared.b32 %x, [%low];",
        "mad.lo.u32 %low, %t, 4, %s; @%last add.u32 %low, %low, 1024; ld.shared.b32 %x, [%low];",
        "mul.lo.u32 %low, %t, 4; @%last mov.u32 %low, 20; st.local.b32 [%low], %t;",
        "mov.u32 %low, -4; ld.local.b32 %x, [%low];",
        "mov.u32 %low, 20; ld.local.b32 %x, [%low];",
        "ld.global.b32 %x, [%out+-4];",
        "@%last sub.s64 %at, %at, 64; ld.global.b32 %x, [%at];",
    ],
    ids=["uniform, reserved", "lanes, reserved", "one lane below", "one lane beyond", "local, one lane beyond",
         "local, below", "local, beyond", "global, below", "global, one lane below"],
)  # fmt: skip
def test_out_of_bounds(body: str) -> None:
    """Below the first byte and behind the last one, for one address and for one lane of many."""
    with pytest.raises(MemoryFault, match=r"out of bounds|outside|reserved|not a shared address|not a global address"):
        launch(body)


ROWS = "shl.b32 %r, %t, 4; cvt.u64.u32 %row, %r; add.s64 %row, %row, %base;"
LDMATRIX = "ldmatrix.sync.aligned.m8n8.x1.b16 {%x}, [%row];"
STMATRIX = "stmatrix.sync.aligned.m8n8.x1.b16 [%row], {%x};"


@pytest.mark.parametrize("instruction", [LDMATRIX, STMATRIX], ids=["ldmatrix", "stmatrix"])
@pytest.mark.parametrize(
    "move",
    [
        "add.s64 %row, %row, 0x1000000;",
        "@%last add.s64 %row, %row, 0x1000000;",
        "@%last mov.u64 %row, %out;",
        "@%last add.s64 %row, %row, 1024;",
        "@%last sub.s64 %row, %row, 1024;",
        "@%last cvt.u64.u32 %row, %s;",
    ],
    ids=["the peer's", "one of the peer's", "one in global memory", "one beyond", "one reserved", "one not generic"],
)
def test_rows_of_a_matrix(move: str, instruction: str) -> None:
    """Rows of ldmatrix and stmatrix lie in the CTA's own shared memory, every one of them."""
    with pytest.raises(MemoryFault):
        launch(f"{ROWS} {move} {instruction}")


def test_rows_in_place() -> None:
    """Generic addresses of the CTA's own shared memory are read where they are, in any order."""
    out = launch("xor.b32 %r, %t, 7; shl.b32 %r, %r, 4; cvt.u64.u32 %row, %r; add.s64 %row, %row, %base;" + LDMATRIX)
    rows = np.arange(32).reshape(8, 4)[::-1]
    np.testing.assert_array_equal(out.reshape(8, 4), rows)


BAR = "add.u32 %r, %s, 512; setp.ne.u32 %p, %t, 0; @!%p mbarrier.init.shared::cta.b64 [%r], 1; mov.b16 %both, 3;"
COPY = ("@!%p cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%low], [%out], 16, [%r], %both;")  # fmt: skip


@pytest.mark.parametrize(
    "move",
    ["mov.u32 %low, 0x7f000400;", "mov.u32 %low, %s; add.u32 %r, %r, 0x7f000000;"],
    ids=["destination", "barrier"],
)
def test_multicast_to_an_address_outside_the_cluster(move: str) -> None:
    """The upper bits of a multicast's addresses are no offset, yet they must be those of a CTA of the cluster."""
    with pytest.raises(MemoryFault, match="is not in shared memory of this cluster"):
        launch(f"{BAR} {move} {COPY}")
