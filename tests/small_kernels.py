"""Small kernels around a few fragments, run by the emulator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tilekit.assembly.types import F32, GMEM, U32, RegisterType
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Writer
from tilekit.emulator import Device

Array = npt.NDArray[Any]

BF16 = np.dtype(ml_dtypes.bfloat16)
E4M3 = np.dtype(ml_dtypes.float8_e4m3fn)
E5M2 = np.dtype(ml_dtypes.float8_e5m2)


class SmallKernel:
    """A kernel under construction, with one pointer for each array, in the order they are passed to `run`.

    Parameters
    ----------
    pointers, maps
        Number of pointer and tensor map parameters.
    threads, cluster
        Launch shape.
    """

    def __init__(self, *, pointers: int = 0, maps: int = 0, threads: int = 32, cluster: int = 1) -> None:
        self.w = Writer("small", target="sm_90a", threads=threads, cluster=cluster)
        self.maps = [self.w.tensor_map(f"map{i}") for i in range(maps)]
        self.pointers = [self.w.parameter(f"p{i}", GMEM) for i in range(pointers)]
        self.thread = self.w.thread()

    def element(self, pointer: int, index: Value | int, size: int = 4) -> Value:
        """Address of an element of an array."""
        index = index if isinstance(index, Value) else self.w.constant(U32, index)
        return (self.pointers[pointer] + self.w.widen_multiply(index, size)).retyped(GMEM)

    def load(self, pointer: int, index: Value, type_: RegisterType = F32) -> Value:
        """The 32-bit element of an array."""
        value: Value = self.w.ptx.memory.load_global_scalar(address=self.element(pointer, index))
        if type_ is F32:
            return value
        bits = self.w.new(type_, "bits", uniform=False)
        self.w.emit(f"mov.b32 {bits.text}, {value.text};")
        return bits

    def store(self, pointer: int, index: Value, value: Value) -> None:
        """Store 16 or 32 bits."""
        always = self.thread >= 0
        if value.type.bits == 16:
            address = self.element(pointer, index, 2)
            self.w.ptx.memory.store_global_b16(address=address, value=value, valid=always)
        else:
            address = self.element(pointer, index)
            self.w.ptx.memory.store_global_f32(address=address, value=value.retyped(F32), valid=always)

    def barrier(self, name: str, count: int = 1) -> Value:
        """An initialised mbarrier that every thread of the cluster may use."""
        w = self.w
        array = w.shared.allocate(name, size=8, alignment=8, kind="mbarrier")
        address = w.shared_base + array.offset
        with w.when(self.thread == 0):
            w.ptx.mbarrier.init(bar=address, count=count)
            w.ptx.mbarrier.fence_init()
        w.warp_sync()
        if w.cluster > 1:
            w.ptx.cluster.arrive()
            w.ptx.cluster.wait()
        else:
            w.barrier(id=0, threads=w.threads)
        return address

    def run(
        self,
        *arrays: Array,
        maps: Sequence[Callable[[Device], bytes]] = (),
        scalars: Sequence[int] = (),
        grid: int = 1,
    ) -> None:
        """Launch with the arrays, updated in place; each of `maps` makes a tensor map; u32 `scalars` follow."""
        machine = Device("sm_90a")
        arguments = [make(machine) for make in maps]
        machine.load(self.w.text())["small"].launch(
            grid=(grid, 1, 1),
            block=(self.w.threads, 1, 1),
            cluster=(self.w.cluster, 1, 1),
            shared_bytes=self.w.shared.size,
            args=[*arguments, *arrays, *map(np.uint32, scalars)],
        )


class Tensor:
    """A device array with a tensor map, read back after the launch."""

    def __init__(self, array: Array, box: tuple[int, ...], **options: Any) -> None:
        self._array, self._box, self._options = array, box, options

    def __call__(self, device: Device) -> bytes:
        self._buffer = device.buffer(self._array)
        return device.tensor_map_tiled(self._buffer, box=self._box, **self._options)

    def read(self) -> Array:
        """The array as the kernel left it."""
        return self._buffer.read()
