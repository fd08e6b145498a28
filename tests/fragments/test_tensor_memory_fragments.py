"""Tensor memory: allocation, loads, stores and waits, run alone by the emulator and compared with NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from blackwell_kernel import BlackwellKernel
from fragment_entries import Case, module, ptxas_errors
from small_kernels import Array

from tilekit.assembly.errors import FragmentError
from tilekit.assembly.fragment_files import fragments_of
from tilekit.assembly.types import F32, TMEM, U32
from tilekit.assembly.values import Value
from tilekit.emulator import EmulatorError
from tilekit.targets import SM_100A

POWERS = [1 << n for n in range(8)]
LANES = np.arange(128)


def quadrant(k: BlackwellKernel, address: Value) -> Value:
    """`address`, in the lanes of tensor memory that the executing warp may access."""
    return address + (k.warp.retyped(TMEM) << 21)


def stored(k: BlackwellKernel, address: Value, columns: int) -> None:
    """Fill the columns from the first array."""
    w = k.w
    for first in range(0, columns, 128):
        values = w.tile(F32, min(columns, 128), "values")
        for column, register in enumerate(values, start=first):
            register.assign(k.load(0, k.thread * columns + column))
        w.ptx.tcgen05.store_32x32b(address=quadrant(k, address) + first, values=values, x=len(values))


def contents(columns: int) -> Array:
    """A number for each (lane, column), different everywhere."""
    return (1000 * LANES[:, None] + np.arange(columns) + 1).astype(np.float32)


def round_trip(columns: int, *, wait_store: bool = True, wait_load: bool = True) -> Array:
    """Store and load whole lanes."""
    out = np.zeros((128, columns), np.float32)
    allocated = max(32, columns)
    k = BlackwellKernel(pointers=2)
    w = k.w
    address = k.allocate(allocated)
    stored(k, address, columns)
    if wait_store:
        w.ptx.tcgen05.wait_store()
    values = w.tile(F32, columns, "loaded")
    w.ptx.tcgen05.load_32x32b(values=values, address=quadrant(k, address), x=columns)
    if wait_load:
        w.ptx.tcgen05.wait_load()
    for column, register in enumerate(values):
        k.store(1, k.thread * columns + column, register)
    k.free(address, allocated)
    k.run(contents(columns), out)
    return out


@pytest.mark.parametrize("columns", POWERS)
def test_lanes_come_back(columns: int) -> None:
    """`store_32x32b` and `load_32x32b` put register j of thread t at lane t, column j, for every x."""
    np.testing.assert_array_equal(round_trip(columns), contents(columns))


@pytest.mark.parametrize(
    ("left_out", "message"), [("wait_store", "nothing was ever written"), ("wait_load", "in flight is used")]
)
def test_waits_are_needed(left_out: str, message: str) -> None:
    """Without `wait_store` the load, without `wait_load` the use of the registers comes too early, and is noticed."""
    with pytest.raises(EmulatorError, match=message):
        round_trip(4, **{left_out: False})


@pytest.mark.parametrize("x", POWERS[:6])
@pytest.mark.parametrize("half", [0, 16])
def test_16x256b_is_a_matrix_fragment(x: int, half: int) -> None:
    """`load_16x256b`: register j of thread t is lane t / 4 + 8 (j / 2 % 2), column 8 (j / 4) + 2 (t % 4) + j % 2."""
    columns = 8 * x
    out = np.zeros((128, 4 * x), np.float32)
    allocated = max(32, columns)
    k = BlackwellKernel(pointers=2)
    w = k.w
    address = k.allocate(allocated)
    stored(k, address, columns)
    w.ptx.tcgen05.wait_store()
    values = w.tile(F32, 4 * x, "values")
    w.ptx.tcgen05.load_16x256b(values=values, address=quadrant(k, address) + (half << 16), x=x)
    w.ptx.tcgen05.wait_load()
    for index, register in enumerate(values):
        k.store(1, k.thread * (4 * x) + index, register)
    k.free(address, allocated)
    k.run(contents(columns), out)
    t, j = LANES[:, None], np.arange(4 * x)
    lane = 32 * (t // 32) + half + t % 32 // 4 + 8 * (j // 2 % 2)
    column = 8 * (j // 4) + 2 * (t % 4) + j % 2
    np.testing.assert_array_equal(out, contents(columns)[lane, column])


@pytest.mark.parametrize("columns", [32, 64, 128, 256, 512])
@pytest.mark.parametrize("group", [1, 2])
def test_allocation_gives_an_address(columns: int, group: int) -> None:
    """`alloc`, `relinquish` and `dealloc` of every legal width balance, and all threads read the same address."""
    out = np.full((group, 128), 7, np.uint32)
    k = BlackwellKernel(pointers=1, group=group)
    address = k.allocate(columns)
    k.store(0, k.w.ptx.cluster.cta_rank() * 128 + k.thread, address.retyped(U32))
    k.free(address, columns)
    k.run(out)
    assert (out == 0).all()


def test_what_is_not_freed_is_noticed() -> None:
    """A kernel that ends without `dealloc` is wrong: the test above can fail."""
    k = BlackwellKernel()
    k.allocate(32)
    with pytest.raises(EmulatorError, match="ends with tensor memory allocated"):
        k.run()


def test_a_shared_address_is_no_tensor_memory_address() -> None:
    """The type of tensor-memory addresses keeps other addresses out, and takes offsets in columns and lanes."""
    k = BlackwellKernel()
    address = k.allocate(32)
    assert (address + 8 + (16 << 16)).type is TMEM
    with pytest.raises(FragmentError, match="address is tmem"):
        k.w.ptx.tcgen05.dealloc(address=k.w.shared_base, columns=32, group=1)


@pytest.mark.parametrize(("name", "most"), [("load_16x256b", 32), ("load_32x32b", 128), ("store_32x32b", 128)])
def test_every_power_of_two_assembles(name: str, most: int) -> None:
    """ptxas takes every power of two up to the largest as x, and no other number."""
    fragment = fragments_of(SM_100A)["tcgen05"][name]
    chosen = [Case("tcgen05", fragment, (("x", x),)) for x in (*POWERS, 3, 12) if x <= most]
    for case in chosen:
        x = dict(case.immediates)["x"]
        errors = ptxas_errors(module([case], target="sm_100a"), "sm_100a")
        assert bool(errors) == (x not in POWERS), (x, errors)
