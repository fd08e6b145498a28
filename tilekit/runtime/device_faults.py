"""Faults on the device: which kernels may have caused one.

A kernel that dies is reported at some later call, wherever that is, and every call after that fails alike. The launches
made most recently are remembered by name, so that the report can say which kernels to look at.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from tilekit.errors import KernelFault

__all__ = ["STICKY", "explained", "fault", "recent", "remember"]

STICKY = frozenset(
    {
        "CUDA_ERROR_ASSERT",
        "CUDA_ERROR_CONTAINED",
        "CUDA_ERROR_ECC_UNCORRECTABLE",
        "CUDA_ERROR_HARDWARE_STACK_ERROR",
        "CUDA_ERROR_ILLEGAL_ADDRESS",
        "CUDA_ERROR_ILLEGAL_INSTRUCTION",
        "CUDA_ERROR_INVALID_ADDRESS_SPACE",
        "CUDA_ERROR_INVALID_PC",
        "CUDA_ERROR_LAUNCH_FAILED",
        "CUDA_ERROR_LAUNCH_TIMEOUT",
        "CUDA_ERROR_MISALIGNED_ADDRESS",
    }
)
"""Results that mean a kernel died: the context is lost, and the process must be restarted to use the device again."""

# The same faults as torch and CuPy word them, in lower case.
_PHRASES = (
    "cudaerrorassert",
    "cudaerrorhardwarestackerror",
    "cudaerrorillegaladdress",
    "cudaerrorillegalinstruction",
    "cudaerrorinvalidaddressspace",
    "cudaerrorinvalidpc",
    "cudaerrorlaunchfailure",
    "cudaerrorlaunchtimeout",
    "cudaerrormisalignedaddress",
    "an illegal instruction was encountered",
    "an illegal memory access was encountered",
    "misaligned address",
    "unspecified launch failure",
    *(name.lower() for name in sorted(STICKY)),
)

_recent: deque[str] = deque(maxlen=32)

remember = _recent.append
"""Note a launch by its label. The launch path does nothing else for this file."""


def recent() -> tuple[str, ...]:
    """Return the labels of the most recent launches, latest first, with repetitions counted."""
    counted: list[tuple[str, int]] = []
    for label in reversed(tuple(_recent)):
        if counted and counted[-1][0] == label:
            counted[-1] = (label, counted[-1][1] + 1)
        else:
            counted.append((label, 1))
    return tuple(label if count == 1 else f"{label} ({count} times)" for label, count in counted)


def fault(message: str, *, call: str = "", result: str = "") -> KernelFault:
    """Return the error for a fault that some call reported, with the launches that may have caused it."""
    launches = recent()
    if launches:
        listed = "".join(f"\n  {label}" for label in launches[:8])
        message = f"{message}\na kernel died on the device; launched most recently, latest first:{listed}"
    else:
        message = f"{message}\na kernel died on the device; tilekit launched none in this process"
    message += "\nthe device is lost to this process: restart it, and run the kernel on the emulator to find the cause"
    return KernelFault(message, call=call, result=result, launches=launches)


@contextmanager
def explained() -> Iterator[None]:
    """Turn a fault that another library reports inside a ``with`` block into a `KernelFault`.

    torch and CuPy meet a fault at whatever they do next, a copy or a synchronisation. Other exceptions pass unchanged.
    """
    try:
        yield
    except KernelFault:
        raise
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        if "cuda" in text.lower() and any(phrase in text.lower() for phrase in _PHRASES):
            raise fault(text) from error
        raise
