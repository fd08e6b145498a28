"""Run a mutated kernel and say who noticed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilekit.emulator import (
    Deadlock,
    EmulatorError,
    Livelock,
    PtxSyntaxError,
    UnsupportedInstruction,
)

from .attention import AttentionCase
from .conv2d import ConvCase
from .launches import Arguments, Case
from .mutation import Mutation
from .scaled import ScaledCase
from .third_party import ThirdParty

ORDERS = (("adversarial", 0), ("random", 1), ("fair", 0), ("adversarial", 2), ("random", 3), ("adversarial", 4))
"""Schedules and seeds tried until one of them reports a fault."""

WRONG_RESULT = "wrong result"
NOT_CAUGHT = "not caught"


@dataclass(frozen=True)
class Verdict:
    """What became of a mutation.

    Attributes
    ----------
    mutation
        It.
    caught
        The kind of report (`race`, `barrier`, `deadlock`, …), `wrong result`, or `not caught`.
    message
        The whole report.
    schedule
        Under which it came.
    """

    mutation: Mutation
    caught: str
    message: str = ""
    schedule: str = ""

    @property
    def reported(self) -> bool:
        """Whether the emulator said what is wrong, rather than only computing something else."""
        return self.caught not in (WRONG_RESULT, NOT_CAUGHT)


def judge(
    case: Case | ConvCase | AttentionCase | ScaledCase | ThirdParty,
    mutation: Mutation,
    change: Callable[[Arguments], Arguments] | None = None,
) -> Verdict:
    """Run a mutation of `case` until something is reported; of a convolution, and of scales, until a result is wrong.

    Raises
    ------
    PtxSyntaxError, UnsupportedInstruction
        If the mutated text is no longer a kernel: the mutation is badly written.
    """
    text = mutation.apply(case.text)
    extra: dict[str, Any] = {"change": change} if change is not None else {}
    wrong = ""
    for schedule, seed in ORDERS:
        label = f"{schedule} {seed}"
        try:
            report, right = case.run(text, schedule, seed, **extra)
        except (PtxSyntaxError, UnsupportedInstruction):
            raise
        except EmulatorError as error:
            return Verdict(mutation, _kind(error), str(error), label)
        # Some of other compilers' kernels are remarked on unbroken; of tilekit's none is.
        found = report.findings or (() if isinstance(case, ThirdParty) else report.remarks)
        if found:
            return Verdict(mutation, found[0].kind, "\n".join(map(str, found)), label)
        if not right and not wrong:
            wrong = label
            if isinstance(case, ConvCase | ScaledCase):  # a wrong pixel, or scale, is one under every schedule
                break
    return Verdict(mutation, WRONG_RESULT if wrong else NOT_CAUGHT, "", wrong)


def _kind(error: EmulatorError) -> str:
    """Its title; an endless run is called so whatever stopped it."""
    assert error.title != "emulator defect", str(error)
    if isinstance(error, Livelock) and not isinstance(error, Deadlock):
        return "livelock"
    return error.title
