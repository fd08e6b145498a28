"""Views of arrays in the memory of AMD GPUs, for launches through HIP.

CuPy's and torch's builds for ROCm call their devices by CUDA's names, so only they can say whose memory it is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tilekit.arrays import dlpack
from tilekit.arrays.view import ArrayView, built_for_rocm, view_of, view_of_exchanged, view_of_interface
from tilekit.errors import ArgumentError
from tilekit.runtime import hip

__all__ = ["hip_view"]

_DEFAULT_STREAM = 0  # of the ROCm exchange: 1 and 2 are CUDA's alone


def hip_view(array: Any, name: str = "array") -> ArrayView:
    """Return the view of an array in an AMD GPU's memory; its device is ``("hip", ordinal)``.

    Parameters
    ----------
    array : torch.Tensor or cupy.ndarray of a build for ROCm, or any object with ``__dlpack__`` on a ROCm device or
        ``__cuda_array_interface__``
    name : str
        The argument's name, for messages.

    Raises
    ------
    ArgumentError
        As `view_of`; ``TK-ARRAY-003`` for memory that is no AMD GPU's.
    HipError
        Where HIP is needed to say whose memory it is, and there is none.
    """
    library = type(array).__module__.partition(".")[0]
    if library in ("torch", "cupy"):
        view = view_of(array, name)
        if view.device == "cpu" or not built_for_rocm(library):
            raise _elsewhere(name, view.place)
        return replace(view, device=("hip", view.device[1]))
    if hasattr(array, "__dlpack_device__"):
        device_type, _ = array.__dlpack_device__()
        if device_type == dlpack.ROCM:
            found = dlpack.exchange(array, name, _DEFAULT_STREAM, devices=(dlpack.ROCM,))
            return view_of_exchanged(found, array, ("hip", found.device[1]))
        raise _elsewhere(name, f"in {dlpack.device_name(int(device_type))}")
    if hasattr(array, "__cuda_array_interface__"):
        return view_of_interface(array, name, lambda address: ("hip", hip.device_of(address)))
    raise ArgumentError(
        f"{name} is a {type(array).__module__}.{type(array).__qualname__}; pass a torch.Tensor or cupy.ndarray of a "
        "build for ROCm, or an object with __dlpack__ or __cuda_array_interface__",
        code="TK-ARRAY-001",
    )


def _elsewhere(name: str, place: str) -> ArgumentError:
    return ArgumentError(
        f"{name} is {place}; a launch through HIP takes memory of AMD GPUs. Launches of arrays in host memory are "
        "the emulator's: tilekit.runtime.emulated",
        code="TK-ARRAY-003",
    )
