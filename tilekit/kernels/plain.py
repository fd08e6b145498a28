"""Kernels of threads that are all alike: no roles, no shared memory, a config of one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from tilekit.arrays import ArrayView, view_of
from tilekit.assembly.types import GMEM, U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Parameter, Writer
from tilekit.kernels.assembled import AssembledKernel
from tilekit.kernels.launch import Launch
from tilekit.kernels.picture import Shown
from tilekit.kernels.plan import BoundArrays, DevicePlan, EmulatedPlan, Plan, StagedPlan
from tilekit.runtime.emulated import Work
from tilekit.targets import Target
from tilekit.tiles.call import Call, Schedule, Scratch

CTAS = "ctas"
"""The number of a call that says how many CTAs there are."""


class PlainKernel(AssembledKernel):
    """Reads the array `source` and writes ``out``; what a thread does is traced by a subclass."""

    source: ClassVar[str] = "source"
    threads = 128
    cluster = 1
    launch_bytes = 0
    waits_for_prerequisites = False

    def __init__(self, target: Target) -> None:
        self.target = target
        w = Writer(self.name, target=target, threads=self.threads)
        self._trace(w)
        self._parameters, self._text = tuple(w.parameters), w.text()

    @property
    def assembly(self) -> str:
        """The module's text, each line with its role and origin."""
        return self._text

    @property
    def parameters(self) -> Sequence[Parameter]:
        """Those of the entry, in launch order."""
        return self._parameters

    @property
    def schedule(self) -> Callable[[Call], Schedule]:
        """As many CTAs as the call says."""
        return lambda call: Schedule(ctas := int(call.number(CTAS)), ctas)

    def shared_scratch(self, name: str) -> str | None:
        """None: no component asks for memory."""
        return None

    def shown(self) -> Shown:
        """Threads of one kind, and no shared memory."""
        return Shown(self.name, self.target, self.threads, self.cluster, (), None, (), 0)

    @abstractmethod
    def _trace(self, w: Writer) -> None:
        """Trace what a thread does."""

    @staticmethod
    def _pointer(w: Writer, name: str) -> Value:
        return w.parameter(name, GMEM, lambda call: call.address(name))

    @staticmethod
    def _number(w: Writer, name: str) -> Value:
        return w.parameter(name, U32, lambda call: int(call.number(name)))

    def bound(self, source: ArrayView, out: Any, numbers: Mapping[str, int], device: str | None) -> Plan:
        """Prepare the launch that reads one array and writes ``out``; ``numbers`` has `CTAS`."""
        views = {self.source: source, "out": out if isinstance(out, ArrayView) else view_of(out, "out")}

        def launch(addresses: Any, resident: int, scratch: Scratch) -> Launch:
            return self.launch(Call(1, 1, 1, {}, addresses, resident, numbers=numbers, scratch=scratch))

        bound = BoundArrays(views, ("out",), out, launch, lambda launch: Work(flops=0, tiles=0))
        if views["out"].device != "cpu":
            return DevicePlan(self, bound)
        return StagedPlan(self, bound) if device in ("cuda", "hip") else EmulatedPlan(self, bound, {})
