"""A kernel's text and what becomes of it: machine code, resources, the kernel in the driver, a launch's shape."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from tilekit.annotations import call_checked
from tilekit.assembly.writer import Parameter
from tilekit.drivers.profiler import TileProfiler
from tilekit.errors import ArgumentError
from tilekit.kernels.launch import Launch, bind_parameters
from tilekit.kernels.picture import Shown, page, svg
from tilekit.kernels.resolve import hip_target_of, machine_of, target_of
from tilekit.runtime import driver, hip
from tilekit.runtime.assembler import Assembled, assemble, disassemble
from tilekit.runtime.launch import CudaKernel, CudaModule
from tilekit.runtime.prepared import LaunchConfig
from tilekit.runtime.resources import Resources
from tilekit.targets import Target
from tilekit.tensor.draw import embedded
from tilekit.tiles.call import Call, Schedule

if TYPE_CHECKING:
    from tilekit.kernels.interleavings import Checked
    from tilekit.kernels.plan import Plan
    from tilekit.runtime.hip_launch import HipKernel


class AssembledKernel(ABC):
    """What every kernel object shows, and what a plan asks of it; those that are called with arrays are `ArrayKernel`.

    Attributes
    ----------
    target
        The chip that it is for.
    """

    target: Target

    OPTIONS: ClassVar[str | None] = None
    """Code of the error for options that the emulator refuses; None for that of any argument."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The entry's symbol."""

    @property
    @abstractmethod
    def assembly(self) -> str:
        """The module's text in the chip's instruction set, each line with its role and origin."""

    @property
    def configured(self) -> str:
        """How it was built, in words, where it has a config."""
        return ""

    @property
    def ptx(self) -> str:
        """The same, where the instruction set is PTX.

        Raises
        ------
        ArgumentError
            ``TK-TARGET-003`` where it is another.
        """
        if self.target.isa != "ptx":
            raise ArgumentError(
                f"{self!r} has no PTX: the instruction set of {self.target.name} is {self.target.isa}; nearest: "
                ".assembly",
                code="TK-TARGET-003",
            )
        return self.assembly

    @cached_property
    def assembled(self) -> Assembled:
        """The machine code, from the assembler or the disk cache."""
        return assemble(self.assembly, self.target.name, kernel_name=self.name, config=self.configured)

    @property
    def resources(self) -> Resources:
        """Registers, shared memory and what else the chip's assembler or code object says."""
        return self.assembled.resources

    @cached_property
    def isa(self) -> str:
        """The machine code, disassembled (SASS, or AMDGCN)."""
        return disassemble(self.assembled.image)

    @cached_property
    def cuda(self) -> CudaKernel:
        """The kernel in the CUDA driver."""
        target = machine_of(self.target)
        module = CudaModule.from_ptx(self.ptx, target, kernel_name=self.name, config=self.configured)
        return module.kernel(self.name)

    @property
    def device(self) -> str:
        """What the GPUs that it runs on are called: ``"cuda"`` or ``"hip"``."""
        return "cuda" if self.target.isa == "ptx" else "hip"

    def loaded(self, ordinal: int) -> CudaKernel | HipKernel:
        """The kernel in the runtime of the chip's vendor, for a device."""
        return self.cuda if self.target.isa == "ptx" else self._hip(ordinal)

    def _hip(self, ordinal: int) -> HipKernel:
        from tilekit.runtime.hip_launch import HipModule  # when a GPU is there: it reads code objects

        if ordinal not in self._hip_kernels:
            with hip.activated(ordinal):  # a module belongs to a device
                module = HipModule.from_text(
                    self.assembly, self.target.name, kernel_name=self.name, config=self.configured
                )
                self._hip_kernels[ordinal] = module.kernel(self.name)
        return self._hip_kernels[ordinal]

    @cached_property
    def _hip_kernels(self) -> dict[int, HipKernel]:
        """By device."""
        return {}

    # -- to look at --------------------------------------------------------------------------------------------------

    @abstractmethod
    def described(self) -> str:
        """Roles, registers, shared memory, barriers: in words and tables."""

    @abstractmethod
    def shown(self) -> Shown:
        """Return what of the kernel is drawn."""

    @call_checked
    def explain(self, *, html: bool = False) -> str:
        """Who does what: roles and warps, registers, the shared-memory map, barriers and who arrives.

        Parameters
        ----------
        html
            Return a document that draws roles, registers, rings and memory, with the words below; else the words.

        Raises
        ------
        ArgumentError
            ``TK-ARG-001`` for an `html` that is neither True nor False: a file is for the caller to write.
        """
        if not isinstance(html, bool):
            legal = "True or False; explain(html=True) returns the document, for Path.write_text"
            raise ArgumentError.of("html", html, legal=legal, nearest=True, code="TK-ARG-001")
        return page(self.shown(), self.described()) if html else self.described()

    def _repr_html_(self) -> str:
        """The picture, for notebooks."""
        return embedded(svg(self.shown()), repr(self))

    # -- a launch -----------------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def parameters(self) -> Sequence[Parameter]:
        """Those of the entry, in launch order."""

    @property
    @abstractmethod
    def schedule(self) -> Callable[[Call], Schedule]:
        """How a launch covers the output."""

    @property
    @abstractmethod
    def threads(self) -> int:
        """Threads of a CTA."""

    @property
    @abstractmethod
    def cluster(self) -> int:
        """CTAs of a cluster."""

    @property
    @abstractmethod
    def launch_bytes(self) -> int:
        """Dynamic shared memory of a launch, bytes."""

    @property
    @abstractmethod
    def waits_for_prerequisites(self) -> bool:
        """Whether the kernel itself waits for those ahead of it, so that it may start while they run."""

    @property
    def reads_early(self) -> bool:
        """Whether operands are read while the kernel ahead in the stream runs: else they wait for its end."""
        return False

    @property
    def description(self) -> str:
        """The config, for errors of launches."""
        return ""

    @property
    def profile(self) -> TileProfiler | None:
        """What the kernel notes of its own times, if anything."""
        return None

    @abstractmethod
    def shared_scratch(self, name: str) -> str | None:
        """Under which name launches of a stream share a component's memory; None where each has its own."""

    @cached_property
    def _residents(self) -> dict[int, int]:
        """By device, its `resident_clusters`."""
        return {}

    def launch(self, call: Call) -> Launch:
        """Grid and parameters of a call."""
        return bind_parameters(self.parameters, self.schedule, call)

    def launch_config(self, grid: int) -> LaunchConfig:
        """The launch's shape for a grid of so many CTAs."""
        return LaunchConfig(
            grid=(grid, 1, 1),
            block=(self.threads, 1, 1),
            cluster=(self.cluster, 1, 1),
            shared_bytes=self.launch_bytes,
            pdl=self.target.has("dependent_launch") and self.waits_for_prerequisites,
        )

    def resident_clusters(self, ordinal: int) -> int:
        """Clusters of a full grid on a device.

        Raises
        ------
        ArgumentError
            ``TK-API-001`` where it is another chip than the kernel was built for.
        """
        if ordinal not in self._residents:
            self.require_chip(ordinal)
            if self.target.isa == "ptx":
                held = self.cuda.max_active_clusters(self.launch_config(self.cluster), ordinal=ordinal)
            else:
                held = hip.devices()[ordinal].compute_units  # each has room for a workgroup
            self._residents[ordinal] = self._wanted(held, ordinal)
        return self._residents[ordinal]

    def require_chip(self, ordinal: int) -> None:
        """Check that a device is of the chip that the kernel was built for."""
        if self.target.isa == "ptx":
            target_of(driver.devices()[ordinal], self.target.name)
        else:
            hip_target_of(hip.devices()[ordinal], self.target.name)

    def _wanted(self, held: int, ordinal: int) -> int:
        """How many clusters a full grid has, of those that the device holds at once."""
        return held


class ArrayKernel(AssembledKernel):
    """A kernel that is called with arrays: one of a family, or composed by a function of yours."""

    @abstractmethod
    def bind(self, *arrays: Any, **keywords: Any) -> Plan:
        """Check the arrays once and prepare the launch; calling the result launches it."""

    @abstractmethod
    def check(self, *arrays: Any, **keywords: Any) -> Checked:
        """Run the kernel on the emulator, under several interleavings, whose results must agree."""
