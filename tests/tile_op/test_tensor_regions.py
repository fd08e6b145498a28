"""Regions of tensor memory: who claims what, and that regions do not meet."""

from __future__ import annotations

import numpy as np
import pytest

from tilekit.assembly.errors import TraceError
from tilekit.assembly.types import F32, GMEM, TMEM
from tilekit.assembly.values import RegisterTile
from tilekit.assembly.writer import Role, Writer
from tilekit.dtypes import BF16
from tilekit.emulator import Device
from tilekit.tile_op.tcgen05 import Tcgen05
from tilekit.tile_op.tensor_accumulators import TensorAccumulators
from tilekit.tile_op.tensor_memory import TensorMemory, TensorRegion
from tilekit.tiles.cluster import Cluster
from tilekit.tiles.operand import OperandTile

WORK = Role("work", warps=range(4), may=frozenset({"tmem", "memory", "store", "sync"}))
ISSUE = Role("issue", warps=range(4, 5), may=frozenset({"tmem", "memory", "sync"}))


def memory(w: Writer, capacity: int = 512) -> TensorMemory:
    """Of one CTA."""
    cluster = Cluster.read(w, 1, 1)
    return TensorMemory(w, capacity=capacity, allocates=ISSUE, others=(WORK,), cluster=cluster, barrier=1)


def writer() -> Writer:
    """A kernel of five warps."""
    return Writer("regions", target="sm_100a", threads=160)


@pytest.mark.parametrize(
    ("claims", "firsts", "columns"),
    [
        ([(24, 1)], [0], 32),
        ([(24, 1), (40, 1)], [0, 24], 64),
        ([(24, 1), (41, 1)], [0, 24], 128),
        ([(3, 1), (8, 32), (1, 1)], [0, 32, 40], 64),
        ([(256, 1), (256, 1)], [0, 256], 512),
    ],
)
def test_columns_follow_from_the_claims(claims: list[tuple[int, int]], firsts: list[int], columns: int) -> None:
    """Regions lie one behind the other, aligned as they ask; the allocation is the next power of two."""
    tensor = memory(writer())
    regions = [
        tensor.claim(f"r{index}", columns=width, claimant="Test", alignment=alignment)
        for index, (width, alignment) in enumerate(claims)
    ]
    assert [region.first for region in regions] == firsts
    assert tensor.columns == columns


def test_regions_do_not_meet() -> None:
    """Two regions of one allocation are written and read by their names; each holds what was written to it."""
    w = writer()
    out = w.parameter("out", GMEM)
    tensor = memory(w)
    regions = [tensor.claim(name, columns=8, claimant="Test") for name in ("scales", "products", "weights")]
    assert tensor.columns == 32
    warp, thread = w.warp(), w.thread()
    with w.role(ISSUE, warp):
        assert tensor.bind(w, ISSUE) is tensor.bind(w, ISSUE)
    with w.role(WORK, warp):
        base = tensor.bind(w, WORK)
        lanes = warp << 21
        for index, region in enumerate(regions):
            values = [w.constant(F32, 0.0) for _ in range(8)]
            for column, value in enumerate(values):
                value.assign(100.0 * index + column)
            address = (region.at(base) + lanes).retyped(TMEM)
            w.ptx.tcgen05.store_32x32b(address=address, values=RegisterTile(values), x=8)
        w.ptx.tcgen05.wait_store()
        for index, region in enumerate(regions):
            # Four registers of the 16x256b shape are 16 lanes by 8 columns.
            registers = w.tile(F32, 4, "read")
            address = (region.at(base) + lanes).retyped(TMEM)
            w.ptx.tcgen05.load_16x256b(values=registers, address=address, x=1)
            w.ptx.tcgen05.wait_load()
            for place, register in enumerate(registers):
                element = out + w.widen_multiply((thread * 3 + index) * 4 + place, 4)
                w.isa.memory.store_global_f32(address=element.retyped(GMEM), value=register, valid=thread >= 0)
        w.ptx.tcgen05.fence_before()
    w.barrier(id=0, threads=w.threads)
    tensor.free(w, warp)
    found = np.full((128, 3, 2, 2), np.nan, np.float32)
    for seed in range(3):
        report = (
            Device("sm_100a", seed=seed)
            .load(w.text())["regions"]
            .launch(grid=1, block=160, shared_bytes=w.shared.size, args=[found])
        )
        columns = 2 * (np.arange(128) % 4)[:, None, None, None] + np.arange(2)
        assert (found == columns + 100.0 * np.arange(3)[:, None, None]).all()
        assert report.clean, str(report)


def test_one_name_has_one_claimant() -> None:
    """A second claim of a name names both components."""
    tensor = memory(writer())
    tensor.claim("scales", columns=4, claimant="ScalesA")
    with pytest.raises(TraceError, match=r"'scales' is claimed by ScalesB and by ScalesA.*TK-TRACE-016"):
        tensor.claim("scales", columns=4, claimant="ScalesB")


def test_columns_run_out() -> None:
    """Claims beyond the chip's columns name every claimant, by how much, and the nearest that fits."""
    tensor = memory(writer())
    tensor.claim("accumulators", columns=384, claimant="TensorAccumulators")
    with pytest.raises(TraceError, match="TK-TRACE-016") as caught:
        tensor.claim("scales", columns=160, claimant="Scales", alignment=32)
    for part in (
        "512",
        "32 over",
        "'accumulators' of TensorAccumulators 384",
        "'scales' of Scales 160",
        "nearest",
        "128",
    ):
        assert part in str(caught.value)
    assert tensor.claim("scales", columns=128, claimant="Scales") == TensorRegion("scales", "Scales", 384, 128)


def test_claims_come_before_the_allocation() -> None:
    """A claim behind the allocation would have no columns: refused, with the role that allocated."""
    w = writer()
    tensor = memory(w)
    tensor.claim("accumulators", columns=32, claimant="TensorAccumulators")
    with w.role(ISSUE, w.warp()):
        tensor.bind(w, ISSUE)
    with pytest.raises(TraceError, match=r"Late claims 8 columns.*'late'.*role 'issue'.*TK-TRACE-016"):
        tensor.claim("late", columns=8, claimant="Late")


def test_one_warp_allocates() -> None:
    """A role of several warps would allocate several times."""
    w = writer()
    with pytest.raises(TraceError, match=r"role 'work' has 4 warps.*TK-TRACE-013"):
        TensorMemory(w, capacity=512, allocates=WORK, others=(), cluster=Cluster.read(w, 1, 1), barrier=1)


def test_no_more_columns_than_the_chip_has() -> None:
    """A capacity beyond the chip's, which a launch would refuse."""
    with pytest.raises(TraceError, match=r"capacity=1024.*an integer from 32 to 512; nearest: 512.*TK-PART-001"):
        memory(writer(), 1024)


def test_a_chip_without_tensor_memory() -> None:
    """Said as such, with what holds sums there."""
    w = Writer("regions", target="sm_90a", threads=160)
    with pytest.raises(TraceError, match=r"sm_90a has no tensor memory; nearest: RegisterAccumulators.*TK-TARGET-003"):
        memory(w)


def test_every_role_that_reads_learns_the_address() -> None:
    """A role that was not named among the others would read columns of no address."""
    w = writer()
    cluster = Cluster.read(w, 1, 1)
    tensor = TensorMemory(w, capacity=512, allocates=ISSUE, others=(), cluster=cluster, barrier=1)
    tensor.claim("accumulators", columns=32, claimant="TensorAccumulators")
    with w.role(WORK, w.warp()), pytest.raises(TraceError, match=r"others=\(\)\); legal: every role.*'work' too"):
        tensor.bind(w, WORK)


def test_two_accumulators_in_one_tensor_memory() -> None:
    """Each has a name of its own; of one name the second is refused, and the advice can be followed."""
    w = writer()
    tensor = memory(w)
    op = Tcgen05(OperandTile("a", BF16, 128, "k"), OperandTile("b", BF16, 64, "k"), group=1)
    roles = {"mma": ISSUE, "epilogue": WORK}
    first = TensorAccumulators(w, tensor, op, stages=1, **roles)
    with pytest.raises(TraceError, match=r"give one of them another name.*TK-TRACE-016"):
        TensorAccumulators(w, tensor, op, stages=1, **roles)
    second = TensorAccumulators(w, tensor, op, stages=2, name="gates", **roles)
    assert (first.region.first, second.region.first, tensor.columns) == (0, 64, 256)
    assert {"gates.full", "accumulators.full"} <= {array.name for array in w.shared.arrays}
