"""What a chip lacks: a verb does nothing or something simpler, and what has no substitute is refused by name."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from tilekit import MatmulConfig, MatmulSpec
from tilekit.assembly.errors import FragmentError, TraceError
from tilekit.assembly.types import DSMEM, F32, GMEM
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Writer
from tilekit.emulator import Device
from tilekit.errors import ArgumentError
from tilekit.kernels.matmul.compiled import MatmulKernel
from tilekit.targets import SM_90A, SM_100A, Target

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def without(*names: str) -> Target:
    """A Hopper chip that lacks capabilities."""
    return replace(SM_90A, capabilities=SM_90A.capabilities - set(names))


def test_a_capability_has_a_name() -> None:
    """A target cannot claim what no fragment or verb knows."""
    with pytest.raises(ArgumentError, match=r"tensor_memroy is no capability.*TK-TARGET-002"):
        replace(SM_90A, capabilities=frozenset({"tensor_memroy"}))


def test_a_kernel_on_a_chip_with_less() -> None:
    """Without elections, overlapping launches and registers that move, the same components are right."""
    chip = without("elect", "dependent_launch", "register_reallocation")
    kernel = MatmulKernel(MatmulSpec(), MatmulConfig(), chip)
    whole = MatmulKernel(MatmulSpec(), MatmulConfig(), SM_90A).ptx
    for word in ("elect.sync", "griddepcontrol", "setmaxnreg"):
        assert word in whole
        assert word not in kernel.ptx
    random = np.random.default_rng(5)
    a = random.integers(-3, 4, (150, 136)).astype(BFLOAT16)
    b = random.integers(-3, 4, (264, 136)).astype(BFLOAT16)
    launch = kernel.bind(a, b.T, seed=5)
    exact = a.astype(np.float32) @ b.T.astype(np.float32)
    assert np.array_equal(launch().astype(np.float32), exact.astype(BFLOAT16).astype(np.float32))


@pytest.mark.parametrize("chip", [SM_90A, without("named_barriers")], ids=["named", "one of the CTA"])
def test_a_barrier_of_all_threads(chip: Target) -> None:
    """Threads meet at barrier 3 and see what each other wrote; without named barriers, at the CTA's only one."""
    w = Writer("mirror", target=chip, threads=96)
    out = w.parameter("out", GMEM)
    array = w.shared.allocate("numbers", size=4 * 96)
    thread, always = w.thread(), w.thread() >= 0
    w.isa.memory.store_shared_b32(address=w.shared_base + thread * 4 + array.offset, value=thread)
    w.barrier(id=3, threads=96)
    other: Value = w.isa.memory.load_shared_b32(address=w.shared_base + (95 - thread) * 4 + array.offset)
    address = (out + w.widen_multiply(thread, 4)).retyped(GMEM)
    w.isa.memory.store_global_f32(address=address, value=other.retyped(F32), valid=always)
    assert ("bar.sync 3, 96;" in w.text()) == chip.has("named_barriers")
    device = Device("sm_90a", seed=2)
    target = device.buffer(np.zeros(96, np.uint32))
    device.load(w.text())["mirror"].launch(grid=1, block=96, shared_bytes=w.shared.size, args=[target])
    assert target.read().tolist() == list(range(95, -1, -1))


def test_some_threads_meet_at_named_barriers_alone() -> None:
    """Without them, a barrier of some threads and an arrival that does not wait are refused, with chip and place."""
    w = Writer("k", target=without("named_barriers"), threads=256)
    for call in (lambda: w.barrier(id=1, threads=128), lambda: w.barrier_arrive(id=1, threads=128)):
        with pytest.raises(TraceError, match="TK-TARGET-003") as caught:
            call()
        for word in ("test_capabilities.py", "sm_90a", "no named barriers", "nearest: "):
            assert word in str(caught.value)


def test_a_chip_without_clusters() -> None:
    """A CTA is alone in its cluster: its rank is 0, and the cluster's barrier is nothing; more CTAs are refused."""
    chip = without("clusters")
    w = Writer("alone", target=chip, threads=32)
    out = w.parameter("out", GMEM)
    w.cluster_arrive()
    rank = w.cluster_rank()
    array = w.shared.allocate("number", size=4)
    own = w.shared_base + array.offset
    mapped = w.cluster_address(own, rank)
    assert (mapped.text, mapped.type) == (own.text, DSMEM), "it is the CTA's own"
    w.isa.memory.store_shared_b32(address=own, value=rank)
    w.cluster_wait()
    read: Value = w.isa.memory.load_shared_b32(address=own)
    address = (out + w.widen_multiply(w.thread(), 4)).retyped(GMEM)
    w.isa.memory.store_global_f32(address=address, value=read.retyped(F32), valid=w.thread() >= 0)
    text = re.sub("//.*", "", w.text())
    assert not re.search(r"mapa|barrier\.cluster|%cluster", text)
    device = Device("sm_90a", seed=1)
    target = device.buffer(np.ones(32, np.uint32))
    device.load(w.text())["alone"].launch(grid=1, block=32, shared_bytes=w.shared.size, args=[target])
    assert not target.read().any()
    with pytest.raises(TraceError, match=r"clusters of 2 CTAs.*no clusters; nearest: 1.*TK-TARGET-003"):
        Writer("k", target=chip, threads=32, cluster=2)


@pytest.mark.parametrize(
    ("capability", "chip", "place"),
    [
        ("async_copies", SM_90A, lambda w: w.ptx.cp_async.commit()),
        ("cluster_launch_control", SM_100A, lambda w: w.ptx.clc.try_cancel(dst=w.shared_base, bar=w.shared_base)),
        ("clusters", SM_90A, lambda w: w.ptx.start_order.note(address=w.shared_base, number=1)),
        ("copy_engine", SM_90A, lambda w: w.ptx.tma.commit_stores()),
        ("mbarriers", SM_90A, lambda w: w.ptx.mbarrier.init(bar=w.shared_base, count=1)),
        ("tensor_memory", SM_100A, lambda w: w.ptx.tcgen05.fence_after()),
        ("warpgroup_matrix", SM_90A, lambda w: w.ptx.wgmma.commit()),
    ],
)
def test_what_has_no_verb_is_refused(capability: str, chip: Target, place: Callable[[Writer], None]) -> None:
    """A vendor's component on a chip that lacks what it is made of: fragment, capability, chip and place are named."""
    w = Writer("k", target=chip, threads=128)
    place(w)
    w = Writer("k", target=replace(chip, capabilities=chip.capabilities - {capability}), threads=128)
    with pytest.raises(FragmentError, match="TK-FRAG-003") as caught:
        place(w)
    for word in (f"needs {capability}", chip.name, "test_capabilities.py"):
        assert word in str(caught.value)
