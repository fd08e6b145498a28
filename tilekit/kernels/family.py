"""A kernel family, as the registry lists it: how a call is read, whether the family takes it, and with which kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tilekit.kernels.family_kernel import CallArguments, FamilyKernel
from tilekit.targets import Target


class TunedConfigs(Protocol):
    """Where a family looks up what tuning has found. Who calls hands it in: kernels know nothing of tuning."""

    def __call__(
        self,
        spec: Any,
        target: Target,
        device: str,
        *,
        m: int,
        n: int,
        k: int,
        batches: int,
        groups: int = 0,
        call: CallArguments | None = None,
    ) -> Any:
        """The config for a problem on the device of this name; None where none is known.

        `groups` counts groups of rows, with `m` rows in all; `call` is the call that asks.
        """


class Choices(Protocol):
    """Which configs a family's kernels may have, for tuning."""

    def plain(self, spec: Any) -> str:
        """What of a spec a config is measured for: all but what is fused, which costs no tile its place."""

    def config(self, values: Mapping[str, Any], target: Target) -> Any:
        """Build a config from its fields by name."""

    def ranked(
        self,
        spec: Any,
        target: Target,
        *,
        m: int,
        n: int,
        k: int,
        batches: int = 1,
        groups: int = 0,
        read: float = 1.0,
        sms: int | None = None,
        tuning: bool = False,
    ) -> Sequence[Any]:
        """Configs of a problem that the picker chooses from, best first by the model, its choice first.

        With `tuning`: those that it does not choose from.
        """

    def variants(self, config: Any, spec: Any, target: Target) -> Sequence[Any]:
        """Legal variants of a config in what the model knows nothing of."""


@dataclass(frozen=True)
class Selection:
    """The kernel for a call, and the call as that kernel's family reads it."""

    kernel: FamilyKernel
    arguments: CallArguments


@dataclass(frozen=True)
class Declined:
    """Why a family leaves a call to the others."""

    reason: str


@dataclass(frozen=True)
class Family:
    """One kernel family.

    Attributes
    ----------
    name, summary, targets
        What it is called, what it computes, and the targets it is built for.
    arguments
        What reads a call. Families of the same class are asked in turn for the same calls.
    spec
        What describes one of its kernels.
    select
        The kernel for a call, or why the family declines it. It may be handed a look-up of tuned configs.
    compile
        The kernel for a spec, a config or None, and a target.
    most_rows
        Rows of A that it takes at most; None where there is no limit.
    choices
        Its configs, as tuning tries them; None where there is nothing to tune.
    grouped
        Whether its calls, and specs, are of groups of rows.
    """

    name: str
    summary: str
    targets: tuple[str, ...]
    arguments: type[CallArguments]
    spec: type
    select: Callable[[Any, TunedConfigs | None], Selection | Declined]
    compile: Callable[[Any, Any, Target], FamilyKernel]
    most_rows: int | None = None
    choices: Choices | None = None
    grouped: bool = False
