"""Small kernels for sm_100a with tensor memory, run by the emulator."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from small_kernels import Array, SmallKernel

from tilekit.assembly.types import B16, GMEM, U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Writer
from tilekit.emulator import Device


class BlackwellKernel(SmallKernel):
    """A kernel under construction whose CTAs, or CTA pairs, may use tensor memory.

    Parameters
    ----------
    pointers, maps, threads
        As for `SmallKernel`.
    group
        CTAs that work together: 1, or 2 for a CTA pair, which is then the cluster.
    """

    def __init__(self, *, pointers: int = 0, maps: int = 0, threads: int = 128, group: int = 1) -> None:
        self.w = Writer("small", target="sm_100a", threads=threads, cluster=group)
        self.group = group
        self.maps = [self.w.tensor_map(f"map{i}") for i in range(maps)]
        self.pointers = [self.w.parameter(f"p{i}", GMEM) for i in range(pointers)]
        self.thread = self.w.thread()
        self.warp = self.w.warp()

    def meet(self) -> None:
        """All threads of the CTA, or of the pair, meet."""
        if self.group == 2:
            self.w.ptx.cluster.arrive()
            self.w.ptx.cluster.wait()
        else:
            self.w.barrier(id=0, threads=self.w.threads)

    def allocate(self, columns: int) -> Value:
        """Tensor memory, allocated by the first warp; its address, which every thread may use."""
        w = self.w
        slot = w.shared_base + w.shared.allocate("tmem_address", size=4, alignment=4, kind="scratch").offset
        with w.when(self.warp == 0):
            w.ptx.tcgen05.alloc(dst=slot, columns=columns, group=self.group)
            w.ptx.tcgen05.relinquish(group=self.group)
        w.ptx.tcgen05.fence_before()
        self.meet()
        w.ptx.tcgen05.fence_after()
        address: Value = w.ptx.tcgen05.load_address(src=slot)
        return address

    def free(self, address: Value, columns: int) -> None:
        """Give back what `allocate` gave, once every thread is done with it."""
        self.w.ptx.tcgen05.fence_before()
        self.meet()
        with self.w.when(self.warp == 0):
            self.w.ptx.tcgen05.dealloc(address=address, columns=columns, group=self.group)

    def both(self) -> Value:
        """The mask of both CTAs of the pair."""
        mask: Value = self.w.ptx.convert.narrow_u16(wide=self.w.constant(U32, 0b11))
        assert mask.type is B16
        return mask

    def run(
        self,
        *arrays: Array,
        maps: Sequence[Callable[[Device], bytes]] = (),
        scalars: Sequence[int] = (),
        grid: int | None = None,
    ) -> None:
        """Launch as `SmallKernel.run` does, one group unless `grid` says how many CTAs; nothing may be found."""
        machine = Device("sm_100a")
        arguments = [make(machine) for make in maps]
        report = machine.load(self.w.text())["small"].launch(
            grid=(grid or self.group, 1, 1),
            block=(self.w.threads, 1, 1),
            cluster=(self.group, 1, 1),
            shared_bytes=self.w.shared.size,
            args=[*arguments, *arrays, *map(np.uint32, scalars)],
        )
        assert report.clean, str(report)
