"""Device memory of launches, through a driver that only records."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from tilekit.runtime import scratch
from tilekit.runtime.scratch import StreamScratch


@pytest.fixture
def blocks(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the blocks that were allocated; the first is at 0x1000, each next one 0x1000 further."""
    sizes: list[int] = []
    addresses = count(0x1000, 0x1000)

    def allocate(size: int) -> Any:
        sizes.append(size)
        return cuda.real.CUdeviceptr(next(addresses))

    cuda.answers |= {"cuMemAlloc": allocate, "cuStreamCreate": cuda.real.CUstream(0x5)}
    cuda.answers["cuThreadExchangeStreamCaptureMode"] = cuda.real.CUstreamCaptureMode(0)
    monkeypatch.setattr(scratch, "_blocks", {})
    return sizes


def test_launches_of_a_stream_share_a_block(blocks: list[int]) -> None:
    """A name's launches in one stream of one device get one block's own address, others another's."""
    first = StreamScratch("turns", 1000, 3).address(0, 7)
    assert first == 0x1000
    assert StreamScratch("turns", 1000, 5).address(0, 7) == first
    others = [
        StreamScratch("sums", 1000, 3).address(0, 7),
        StreamScratch("turns", 1000, 3).address(1, 7),
        StreamScratch("turns", 1000, 3).address(0, 8),
        StreamScratch("turns", 1025, 3).address(0, 7),
    ]
    assert len({first, *others}) == 5
    assert blocks == [1024, 1024, 1024, 1024, 2048]


@pytest.mark.parametrize(("size", "block"), [(0, 1), (1, 1), (2, 2), (3, 4), (1024, 1024), (1025, 2048)])
def test_a_blocks_size_is_a_power_of_two(blocks: list[int], size: int, block: int) -> None:
    """The smallest that holds what the launch asks for."""
    StreamScratch("turns", size, 0).address(0, 0)
    assert blocks == [block]


def test_a_block_is_all_zeros(blocks: list[int], cuda: Any) -> None:
    """All bytes of a new block are set to zero before its address is known, in a stream that is waited for."""
    address = StreamScratch("turns", 100, 0).address(0, 0)
    ((start, value, size, stream),) = cuda.named("cuMemsetD8Async")
    assert (int(start), value, size, int(stream)) == (address, 0, 128, 5)
    names = [name for name, _ in cuda.calls]
    assert names.index("cuMemsetD8Async") < names.index("cuStreamSynchronize") < names.index("cuStreamDestroy")
