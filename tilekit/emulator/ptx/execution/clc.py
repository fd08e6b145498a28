"""Cluster launch control: a running cluster takes over one that has not started (PTX ISA, ``clusterlaunchcontrol``).

A request completes asynchronously: sixteen bytes in shared memory, then ``complete_tx(16)`` on an mbarrier, in the
requesting CTA or at the same offsets of every CTA of the cluster. Clusters that have not started form one queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilekit.emulator.core.errors import ProtocolError
from tilekit.emulator.core.memory.memory import OFFSET_MASK
from tilekit.emulator.ptx.checks.exits import ended, visit
from tilekit.emulator.ptx.copies.bulk import InFlight, Mask, Value, active_lanes, at_lane
from tilekit.emulator.ptx.matrix.tensor_pipe import one_lane
from tilekit.emulator.ptx.memory.access import misaligned, resolve
from tilekit.emulator.ptx.synchronisation.mbarriers import barrier_at, changed, shared_address

if TYPE_CHECKING:
    from tilekit.emulator.ptx.execution.warp import Warp

__all__ = ["first_cta", "is_canceled", "try_cancel"]

_BYTES = 16
_ANSWER = "the answer to clusterlaunchcontrol.try_cancel"


class Request(InFlight):
    """One ``clusterlaunchcontrol.try_cancel``."""

    __slots__ = ("operations", "order", "targets")

    def __init__(self, warp: Warp, targets: list[tuple[Any, int, Any]]) -> None:
        super().__init__(warp)
        self.targets = targets
        self.order: Any = warp.cta.launch.order
        hb = self.order
        self.operations = (
            [hb.issue(warp.agent, "cluster launch control", self.instruction, b.arriving) for _, _, b in targets]
            if hb is not None
            else []
        )
        for (cta, _, _), operation in zip(targets, self.operations, strict=False):
            visit(cta, warp, operation.identity, operation.epoch, _ANSWER)

    def land(self) -> bool:
        """Take the first cluster that has not started, if there is one, and deliver the answer."""
        launch = self.cluster.launch
        answer = _encode(launch.machine.cancel_waiting())
        for index, (cta, offset, barrier) in enumerate(self.targets):
            if ended(cta, _ANSWER):
                continue
            cta.shared.data[offset : offset + _BYTES] = answer
            if self.operations:
                operation = self.operations[index]
                if cta.shared.shadow is not None:
                    start = cta.shared.shadow.base + offset
                    cta.shared.shadow.span(operation, start, start + _BYTES, write=True)
                self.order.release(operation, barrier.arriving)
            phase = barrier.phase
            barrier.complete_tx(_BYTES, by=self.warp.actor, instruction=self.instruction)
            changed(self.cluster, barrier, phase)
        self.finish()
        return True


def _encode(first: tuple[int, int, int] | None) -> npt.NDArray[np.uint8]:
    """The sixteen bytes of an answer: x; y and z in 16 bits each; 1 when a cluster was obtained."""
    x, y, z = first if first is not None else (0, 0, 0)
    return np.array([x, z << 16 | y, first is not None, 0], "<u4").view(np.uint8)


def try_cancel(warp: Warp, space: str, destination: Value, barrier: Value, everywhere: bool, mask: Mask | None) -> None:
    """``clusterlaunchcontrol.try_cancel``."""
    lane = one_lane(warp, mask, "clusterlaunchcontrol.try_cancel")
    if lane is None:
        return
    cta, cluster = warp.cta, warp.cta.cluster
    if warp.index in cta.launch_refused:
        raise ProtocolError(
            "clusterlaunchcontrol.try_cancel after this warp has seen a request fail",
            hint="stop when query_cancel.is_canceled is false: no cluster is left",
        )
    target = shared_address(space, at_lane(destination, lane))
    where = shared_address(space, at_lane(barrier, lane))
    if target % _BYTES:
        raise misaligned(target, _BYTES, "clusterlaunchcontrol.try_cancel")
    resolve(warp, "shared", target, _BYTES, "clusterlaunchcontrol.try_cancel")
    targets = []
    for member in cluster.ctas if everywhere else [cta]:
        place = member.shared_base | where & OFFSET_MASK if everywhere else where
        targets.append((member, target & OFFSET_MASK, barrier_at(warp, place)))
    cta.launch.machine.submit(Request(warp, targets))


def is_canceled(warp: Warp, answer: npt.NDArray[np.uint64], mask: Mask | None) -> npt.NDArray[np.bool_]:
    """``query_cancel.is_canceled``: whether a cluster was obtained; uint64[2, 32] to bool[32]."""
    result: npt.NDArray[np.bool_] = (answer[1] & np.uint64(1)).astype(np.bool_)
    if any(not result[lane] for lane in active_lanes(warp, mask)):
        warp.cta.launch_refused.add(warp.index)
    return result


def first_cta(answer: npt.NDArray[np.uint64], axis: int) -> npt.NDArray[np.uint32]:
    """``query_cancel.get_first_ctaid``: a coordinate of the obtained cluster's first CTA (0 for the fourth).

    Undefined where none was obtained: all ones, so that an access through it goes far astray.
    """
    low = answer[0]
    if axis == 3:
        return np.zeros(32, np.uint32)
    shifted: npt.NDArray[np.uint32] = (low >> np.uint64((0, 32, 48)[axis])).astype(np.uint32)
    place = shifted if axis == 0 else np.bitwise_and(shifted, np.uint32(0xFFFF))
    return np.where(answer[1] & np.uint64(1), place, np.uint32(0xFFFFFFFF))
