"""A kernel of the registry's families: made of a spec, a config and a target, it shows itself and binds to arrays."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Protocol, Unpack

from tilekit.assembly.shared import SharedArray
from tilekit.assembly.writer import Parameter, Role
from tilekit.drivers.profiler import TileProfiler
from tilekit.errors import ArgumentError
from tilekit.kernels.assembled import ArrayKernel
from tilekit.kernels.interleavings import Checked, agreeing
from tilekit.kernels.picture import Shown
from tilekit.kernels.plan import BoundArrays, EmulatorKeywords, Plan, plan_for, require_device
from tilekit.targets import Target
from tilekit.tiles.call import Call, Schedule


class CallArguments(Protocol):
    """A call as a family has read it."""

    @property
    def target(self) -> Target:
        """The chip to build for."""

    @property
    def device(self) -> str | None:
        """``"cuda"`` or ``"hip"`` where arrays in host memory go to the GPU."""

    @property
    def config(self) -> Any:
        """The config to take, where the caller gave one."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to compute."""

    @property
    def elsewhere(self) -> str:
        """What is nearest to the call on a chip that its family is not built for, in words; empty where all is said."""


class TracedText(Protocol):
    """A traced kernel: its text, and what a launch must know about it."""

    @property
    def name(self) -> str:
        """The entry's symbol."""

    @property
    def assembly(self) -> str:
        """The module's text."""

    @property
    def parameters(self) -> Sequence[Parameter]:
        """Those of the entry, in launch order."""

    @property
    def schedule(self) -> Callable[[Call], Schedule]:
        """How a launch covers the output."""

    @property
    def threads(self) -> int:
        """Threads of a CTA."""

    @property
    def cluster(self) -> int:
        """CTAs of a cluster."""

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a CTA."""

    @property
    def shared(self) -> Sequence[SharedArray]:
        """What lies in it."""

    @property
    def profile(self) -> TileProfiler | None:
        """What notes the kernel's times, if anything."""


class FamilyKernel(ArrayKernel):
    """A kernel for one spec, config and target.

    Attributes
    ----------
    spec, config, target
        What it computes, how, and for which chip.
    text
        What was traced: the module's text, the launch's shape, the parameters.
    """

    MISFIT: ClassVar[str]
    """Code of the error for arrays that do not fit the kernel."""

    def __init__(self, spec: Any, config: Any, target: Target, text: TracedText) -> None:
        self.spec = spec
        self.config = config
        self.target = target
        self.text = text

    def __repr__(self) -> str:
        return f"<{self.name} for {self.target.name}: {self.config}>"

    @property
    def name(self) -> str:
        """The entry's symbol."""
        return self.text.name

    @property
    def assembly(self) -> str:
        """The module's text in the chip's instruction set, each line with its role and origin."""
        return self.text.assembly

    @property
    def configured(self) -> str:
        """The config in words."""
        return str(self.config)

    def shown(self) -> Shown:
        """What of the kernel is drawn."""
        roles: Sequence[Role] = getattr(self.text, "roles", ())
        return Shown(
            name=self.name,
            target=self.target,
            threads=self.threads,
            cluster=self.cluster,
            roles=roles,
            launch_registers=self.launch_registers,
            shared=self.text.shared,
            shared_bytes=self.text.shared_bytes,
        )

    @property
    def launch_registers(self) -> int | None:
        """Registers a thread as it is launched, where that is a choice of the config."""
        return None

    @property
    def parameters(self) -> Sequence[Parameter]:
        """Those of the entry, in launch order."""
        return self.text.parameters

    @property
    def schedule(self) -> Callable[[Call], Schedule]:
        """How a launch covers the output."""
        return self.text.schedule

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        return self.text.threads

    @property
    def cluster(self) -> int:
        """CTAs of a cluster."""
        return self.text.cluster

    @property
    def launch_bytes(self) -> int:
        """Dynamic shared memory of a launch, bytes."""
        return self.text.shared_bytes

    @property
    def waits_for_prerequisites(self) -> bool:
        """Whether the kernel itself waits for those ahead of it: every family's does, where the chip can."""
        return True

    @property
    def description(self) -> str:
        """The config, for errors of launches."""
        return str(self.config)

    @property
    def profile(self) -> TileProfiler | None:
        """What the kernel notes of its own times, if anything."""
        return self.text.profile

    # -- arrays -------------------------------------------------------------------------------------------------------

    @abstractmethod
    def bound(self, arguments: Any) -> BoundArrays:
        """Return the arrays of a call that this kernel was built for, and how a launch on them is made."""

    def plan(self, arguments: Any, **emulator: Unpack[EmulatorKeywords]) -> Plan:
        """Prepare the launch for arguments that this kernel was built for, where their arrays are."""
        call: CallArguments = arguments
        bound = self.bound(call)
        if call.empty:
            return Plan(bound)
        return plan_for(self, bound, call.device, emulator)

    def check(self, *arrays: Any, seeds: Sequence[int] = (0, 1, 2), **keywords: Any) -> Checked:
        """Run the kernel on the emulator, under several interleavings, whose results must agree to the bit.

        Parameters
        ----------
        arrays, keywords
            Inputs in host memory, as `bind` takes them.
        seeds
            Of the interleavings.

        Returns
        -------
        Checked
            What the emulator reported of each run, a tuple. Findings are not raised: ``clean`` is whether there are
            none, and so is the truth of the result, for ``assert kernel.check()``.

        Raises
        ------
        ArgumentError
            ``TK-COMP-006`` where the results of two interleavings differ.
        """
        return agreeing(self.name, lambda seed: self.bind(*arrays, seed=seed, **keywords), seeds)

    def _require_device(self, device: str | None) -> None:
        """Check the `device` of a `bind`."""
        require_device(self, device, self.MISFIT)

    def _require(self, facts: Iterable[tuple[str, Any, Any]], advice: str) -> None:
        """Compare what is given with what the kernel was built for."""
        for what, given, built in facts:
            if given != built:
                raise ArgumentError(
                    f"{what} is {given}, but {self.name} was built for {built}; {advice}", code=self.MISFIT
                )
