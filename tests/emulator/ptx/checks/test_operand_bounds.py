"""A wgmma operand whose descriptor is wrong or leaves shared memory: the report says so in words."""

from __future__ import annotations

import pytest

from tilekit.emulator import Device, MemoryFault, ProtocolError

TEXT = """
.version 8.0
.target sm_90a
.address_size 64
//@shared inputs.a offset=0 size=8192 kind=tile
//@shared inputs.b offset=8192 size=1024 kind=tile
.extern .shared .align 1024 .b8 smem[];
.visible .entry multiply() .maxntid 128 {
    .reg .b32 d<4>, s;
    .reg .b64 a, b;
    .reg .pred no;
    mov.b32 d0, 0; mov.b32 d1, 0; mov.b32 d2, 0; mov.b32 d3, 0;
    mov.u32 s, smem;
    shr.u32 s, s, 4;
    cvt.u64.u32 a, s;
    or.b64 a, a, 0x4000004000010000;
    add.u64 b, a, 512;
    setp.ne.u32 no, 0, 0;
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {d0, d1, d2, d3}, a, b, no, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    ret;
}
"""


@pytest.mark.parametrize(
    ("operand", "offset", "shared", "end", "read", "start", "name"),
    [
        ("B", 560, 9216, 0x2800, "0x2760..0x2ae0", 0x2700, "inputs.b+0x300"),
        ("A", 512, 8176, 0x23F0, "0x400..0x2400", 0x400, "inputs.a"),
    ],
)
def test_descriptor_in_words(
    operand: str, offset: int, shared: int, end: int, read: str, start: int, name: str
) -> None:
    """Operand, bytes, end of memory, every field of the descriptor, the object it starts in, and the instruction."""
    text = TEXT.replace("add.u64 b, a, 512", f"add.u64 b, a, {offset}")
    with pytest.raises(MemoryFault) as caught:
        Device("sm_90a", check="protocol").load(text)["multiply"].launch(1, 128, shared_bytes=shared)
    fault = caught.value
    assert fault.message == f"wgmma reads {operand} from {read}, beyond the end of shared memory of CTA 0 at {end:#x}"
    assert fault.table.splitlines()[0] == (
        f"descriptor of {operand} {0x4000004000010000 | start >> 4:#018x}: start {start:#x}, leading byte offset 16, "
        f"stride byte offset 1024, swizzle 128B; {start:#x} is {name}"
    )
    assert fault.text.startswith("wgmma.mma_async")
    assert fault.hint.startswith(f"{int(read.partition('..')[2], 16) - end} bytes too far")


@pytest.mark.parametrize("operand", ["a", "b"])
@pytest.mark.parametrize("bit", [14, 46, 52, 61])
def test_reserved_bits_of_either_descriptor(operand: str, bit: int) -> None:
    """A bit that means nothing is refused in the descriptor of A as in that of B, and the operand is named."""
    text = TEXT.replace("add.u64 b, a, 512;", f"add.u64 b, a, 64; xor.b64 {operand}, {operand}, {1 << bit};")
    with pytest.raises(ProtocolError, match=f"descriptor of {operand.upper()}: reserved bits {1 << bit:#018x}"):
        Device("sm_90a", check="protocol").load(text)["multiply"].launch(1, 128, shared_bytes=16384)
