"""Every error tilekit raises: one base class, stable codes, and messages that say what was given and what is legal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self


class TilekitError(Exception):
    """Base of all errors of tilekit.

    Parameters
    ----------
    message : str
        What was given, what is legal, and how to go on.
    code : str, optional
        Stable identifier such as ``TK-ASM-001``; each class has a default. Codes keep their meaning across releases.
    """

    code: str = "TK-GEN-001"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        return f"{self.message} [{self.code}]"

    def __reduce__(self) -> tuple[Any, ...]:
        # Keyword-only arguments do not survive the default pickling, which worker processes rely on.
        return _rebuild, (type(self), self.args, dict(self.__dict__))


def _rebuild(cls: type[TilekitError], args: tuple[object, ...], state: dict[str, object]) -> TilekitError:
    error = cls.__new__(cls, *args)
    error.__dict__.update(state)
    return error


class FindingWarning(UserWarning):
    """The emulator found something wrong in a call that ended: its results may be wrong, or others on a GPU."""


class ArgumentError(TilekitError, ValueError):
    """An argument of a call is not legal."""

    code = "TK-ARG-001"

    @classmethod
    def of(cls, name: str, given: object, *, legal: str, nearest: object = None, code: str | None = None) -> Self:
        """Build the message every argument error has.

        Parameters
        ----------
        name : str
            The argument, as the caller wrote it.
        given : object
            What was passed (shown by `repr`, as far as it has one).
        legal : str
            What may be passed, in words.
        nearest : object, optional
            The nearest legal value, where one exists.
        code : str, optional
            Stable code.
        """
        from tilekit.emulator.core.errors import shown  # not sooner: `tilekit --help` does without the emulator

        hint = "" if nearest is None else f"; nearest legal: {nearest!r}"
        return cls(f"{name}: given {shown(given)}; legal: {legal}{hint}", code=code)


class CallError(ArgumentError, TypeError):
    """A call with a keyword that there is not, or with arguments too few or too many."""

    code = "TK-ARG-002"


class ConfigError(TilekitError, ValueError):
    """A kernel configuration cannot be built; lists every problem at once.

    Parameters
    ----------
    problems : sequence of str
        One sentence a problem: what is wrong, by how much, and the nearest legal value.
    what : str
        What was being configured, e.g. ``matmul 128x256x64 on sm_90a``.
    """

    code = "TK-CFG-001"

    def __init__(self, problems: Sequence[str], *, what: str = "configuration", code: str | None = None) -> None:
        self.problems = tuple(problems)
        self.what = what
        count = len(self.problems)
        lines = "".join(f"\n  - {problem}" for problem in self.problems)
        super().__init__(f"{what}: {count} problem{'' if count == 1 else 's'}{lines}", code=code)


class AssemblerError(TilekitError):
    """The assembler rejected a kernel, or accepted it in a form that would run slowly (spills, serialised wgmma).

    Attributes
    ----------
    log : str
        The assembler's complete output.
    """

    code = "TK-ASM-001"

    def __init__(self, message: str, *, log: str = "", code: str | None = None) -> None:
        super().__init__(message, code=code)
        self.log = log


class AssemblerNotFound(TilekitError):  # noqa: N818  the name says what happened
    """An assembler or disassembler is missing or unusable; the message says what to install."""

    code = "TK-ASM-002"


class DriverError(TilekitError):
    """A CUDA driver call failed, or there is no usable driver.

    Attributes
    ----------
    call : str
        The driver function, e.g. ``cuLibraryLoadData``.
    result : str
        The CUresult's name, e.g. ``CUDA_ERROR_INVALID_VALUE``; empty when no call was made.
    """

    code = "TK-DRV-001"

    def __init__(self, message: str, *, call: str = "", result: str = "", code: str | None = None) -> None:
        super().__init__(message, code=code)
        self.call = call
        self.result = result


class HipError(DriverError):
    """A call of the HIP runtime failed, or there is no usable ROCm runtime.

    Attributes
    ----------
    call : str
        The runtime's function, e.g. ``hipModuleLoadData``.
    result : str
        The hipError_t's name, e.g. ``hipErrorInvalidValue``; empty when no call was made.
    """

    code = "TK-HIP-001"


class KernelFault(DriverError):  # noqa: N818  the name says what happened
    """A kernel died on the device (illegal address, illegal instruction, trap), which is lost to this process.

    Attributes
    ----------
    launches : tuple of str
        Kernels launched most recently, latest first, each with its configuration: the fault belongs to one of them.
    """

    code = "TK-RUN-001"

    def __init__(
        self, message: str, *, call: str = "", result: str = "", launches: Sequence[str] = (), code: str | None = None
    ) -> None:
        super().__init__(message, call=call, result=result, code=code)
        self.launches = tuple(launches)


class EmulationTooLong(TilekitError):  # noqa: N818  the name says what happened
    """The emulator would need longer than `tilekit.settings.emulator_limit` for this launch.

    Attributes
    ----------
    seconds : float
        Estimated run time.
    limit : float
        The limit in force.
    facts : str
        What is said of the launch, without the way out; empty where the message is not made of the two.
    """

    code = "TK-EMU-001"

    def __init__(
        self, message: str, *, seconds: float = 0.0, limit: float = 0.0, facts: str = "", code: str | None = None
    ) -> None:
        super().__init__(message, code=code)
        self.seconds = seconds
        self.limit = limit
        self.facts = facts
