"""The view of an array: where it lies and how it is laid out, read through its own library's quickest door."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from tilekit.arrays import dlpack
from tilekit.dtypes import S32, DType, as_dtype
from tilekit.emulator.core.errors import shown
from tilekit.errors import ArgumentError, TilekitError

__all__ = [
    "AddressInterface",
    "ArrayView",
    "Device",
    "built_for_rocm",
    "has_tangent",
    "host_array",
    "is_array",
    "masked",
    "require_no_gradient",
    "view_of",
    "view_of_exchanged",
    "view_of_fake",
    "view_of_int32",
    "view_of_interface",
]

Device: TypeAlias = Literal["cpu"] | tuple[Literal["cuda", "hip"], int]

_CUDA: Final[tuple[Device, ...]] = tuple(("cuda", ordinal) for ordinal in range(64))
_HIP: Final[tuple[Device, ...]] = tuple(("hip", ordinal) for ordinal in range(64))
_HIP_DEFAULT_STREAM: Final = 0  # of the ROCm exchange: 1 and 2 are CUDA's alone


@dataclass(slots=True, eq=False)
class ArrayView:
    """Where an array lies and how it is laid out. Made once a call, never written to.

    Attributes
    ----------
    address : int
        Address of element zero.
    shape, strides : tuple of int
        In elements, outermost axis first. Strides may be zero (broadcast) or negative.
    dtype : DType
    device : "cpu", ("cuda", ordinal) or ("hip", ordinal)
    library : str
        The root package of the array's type: ``"numpy"``, ``"torch"``, ``"cupy"``, ``"jax"``, ...
    owner : object
        Keeps the memory alive: the array itself, or its DLPack capsule and the array.
    writeable : bool
        Whether the library lets others write to it.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType
    device: Device
    library: str
    owner: Any
    writeable: bool = True

    @property
    def place(self) -> str:
        """Library and device in words, for messages."""
        return f"{self.library} on {self.device if self.device == 'cpu' else ':'.join(map(str, self.device))}"


def view_of(array: Any, name: str = "array") -> ArrayView:
    """Return the view of ``array``. No element is copied or looked at.

    Parameters
    ----------
    array : numpy.ndarray, torch.Tensor, cupy.ndarray, or any object with ``__dlpack__`` or ``__cuda_array_interface__``
    name : str
        The argument's name, for messages.

    Raises
    ------
    ArgumentError
        ``TK-ARRAY-001`` if it is no array; ``TK-ARRAY-002`` if it has no plain memory or needs a gradient;
        ``TK-ARRAY-003`` if its memory is out of reach; ``TK-ARRAY-004`` if a stride is no whole number of elements, or
        the address no multiple of their size; ``TK-DTYPE-001`` for an unknown element type.
    """
    try:
        try:
            adapter = _ADAPTERS[type(array)]
        except KeyError:
            adapter = _ADAPTERS[type(array)] = _adapter_for(array, name)
        found = adapter(array, name)
    except TilekitError:
        raise
    except Exception as error:  # whatever an object does that says it is an array, and is none
        raise ArgumentError(
            f"{name} is a {_called(array)} whose memory cannot be asked for: {type(error).__name__}: {shown(error)}",
            code="TK-ARRAY-001",
        ) from error
    size = found.dtype.bits // 8 or 1  # e2m1 is half a byte
    if found.address % size and 0 not in found.shape:  # no instruction of a GPU reaches such elements
        raise ArgumentError(
            f"{name} begins at address {found.address:#x}, and {found.dtype} lies at multiples of {size} bytes; pass "
            f"one that begins there, for example {name}.copy() of an array",
            code="TK-ARRAY-004",
        )
    return found


def view_of_int32(array: Any, name: str, *, code: str) -> ArrayView:
    """Return the view of whole numbers of 32 bits; `code` is that of the error for those of another type."""
    try:
        view = view_of(array, name)
        given = view.dtype.name
    except ArgumentError as error:
        if error.code != "TK-DTYPE-001":
            raise
        given = str(array.dtype)
    if given != S32.name:
        raise ArgumentError.of(f"{name}'s type", given, legal="int32", nearest="int32", code=code)
    return view


def is_array(value: Any) -> bool:
    """Whether a value says of itself that it is an array: a number, a list or a word does not."""
    try:
        return hasattr(value, "shape")
    except Exception:  # whatever it does when it is asked
        return False


def _adapter_for(array: Any, name: str) -> Callable[[Any, str], ArrayView]:
    bases = {(_root(base), base.__name__) for base in type(array).__mro__}
    if ("torch", "Tensor") in bases:
        return _on_hip(_view_torch) if built_for_rocm("torch") else _view_torch
    if ("cupy", "ndarray") in bases:
        return _on_hip(_view_cupy) if built_for_rocm("cupy") else _view_cupy
    if isinstance(array, np.ndarray) and not isinstance(array, np.ma.MaskedArray):
        return _view_numpy
    if hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__") and not isinstance(array, np.ndarray):
        return _view_dlpack
    if hasattr(array, "__cuda_array_interface__"):
        return _view_cuda_interface
    if isinstance(array, np.ma.MaskedArray):
        raise masked(name)
    raise ArgumentError(
        f"{name} is a {_called(array)}; pass an array: numpy.ndarray, torch.Tensor, "
        "cupy.ndarray, or an object with __dlpack__ or __cuda_array_interface__",
        code="TK-ARRAY-001",
    )


def built_for_rocm(library: str) -> bool:
    """Whether torch or CuPy, which call the devices of either vendor by CUDA's names, is a build for AMD GPUs."""
    module: Any = sys.modules[library]
    if library == "torch":
        return getattr(getattr(module, "version", None), "hip", None) is not None
    return bool(getattr(getattr(module.cuda, "runtime", None), "is_hip", False))


def _on_hip(adapter: Callable[[Any, str], ArrayView]) -> Callable[[Any, str], ArrayView]:
    """The same views, with an AMD GPU where the library says CUDA."""

    def view(array: Any, name: str) -> ArrayView:
        found = adapter(array, name)
        return found if found.device == "cpu" else replace(found, device=_HIP[found.device[1]])

    return view


def _called(array: Any) -> str:
    return f"{type(array).__module__}.{type(array).__qualname__}"


def _root(kind: type) -> str:
    return kind.__module__.partition(".")[0]


def _in_elements(byte_strides: Sequence[int], size: int, name: str) -> tuple[int, ...]:
    # The two-dimensional case is spelled out: it is on every call's path, and a generator costs more than the division.
    if len(byte_strides) == 2:
        outer, inner = byte_strides
        if not (outer | inner) & (size - 1):
            return (outer // size, inner // size)
    for axis, stride in enumerate(byte_strides):
        if stride % size:
            raise ArgumentError(
                f"{name} has a stride of {stride} bytes on axis {axis}, no whole number of its {size}-byte elements",
                code="TK-ARRAY-004",
            )
    return tuple(stride // size for stride in byte_strides)


def _view_numpy(array: Any, name: str) -> ArrayView:
    return ArrayView(
        array.ctypes.data,
        array.shape,
        _in_elements(array.strides, array.itemsize, name),
        as_dtype(array.dtype, name),
        "cpu",
        "numpy",
        array,
        array.flags.writeable,
    )


def _view_torch(tensor: Any, name: str) -> ArrayView:
    try:
        address = tensor.data_ptr()
        strides = tensor.stride()
    except RuntimeError as error:
        raise ArgumentError(
            f"{name} is a {_torch_kind(tensor)} without plain memory: {error}", code="TK-ARRAY-002"
        ) from None
    ordinal = tensor.get_device()
    if not (tensor.is_cpu if ordinal < 0 else tensor.is_cuda):
        raise _elsewhere(tensor, name)
    torch = sys.modules["torch"]
    if (tensor.requires_grad and torch.is_grad_enabled()) or torch.autograd.forward_ad._current_level >= 0:
        require_no_gradient(tensor, name)
    if tensor.is_neg():
        raise _negated(name)
    return ArrayView(
        address,
        tensor.shape,
        strides,
        as_dtype(tensor.dtype, name),
        _CUDA[ordinal] if ordinal >= 0 else "cpu",
        "torch",
        tensor,
    )


def view_of_fake(tensor: Any, name: str) -> ArrayView:
    """Return the view that `view_of` would give of the tensor that a torch tensor without memory stands for.

    Parameters
    ----------
    tensor : torch.Tensor
        A FakeTensor, or a tensor on the meta device, which counts as the CPU. Its extents may be symbols. The address
        is the offset in its storage, as if that began at zero: libraries align storages.
    name : str
        The argument's name, for messages.

    Raises
    ------
    ArgumentError
        What `view_of` raises for torch tensors.
    """
    place = tensor.device.type
    if place not in ("cpu", "cuda", "meta"):
        raise _elsewhere(tensor, name)
    require_no_gradient(tensor, name)
    if tensor.is_neg():
        raise _negated(name)
    dtype = as_dtype(tensor.dtype, name)
    device = _CUDA[tensor.device.index or 0] if place == "cuda" else "cpu"
    return ArrayView(
        tensor.storage_offset() * dtype.bytes, tensor.shape, tensor.stride(), dtype, device, "torch", tensor
    )


def masked(name: str) -> ArgumentError:
    """Return the error (``TK-ARRAY-002``) for an array some of whose elements do not count."""
    return ArgumentError(f"{name} has a mask, which would be ignored; pass its data alone", code="TK-ARRAY-002")


def _elsewhere(tensor: Any, name: str) -> ArgumentError:
    return ArgumentError(f"{name} lies on {tensor.device}; tilekit takes CPU and CUDA tensors", code="TK-ARRAY-003")


def has_tangent(tensor: Any) -> bool:
    """Return whether forward-mode differentiation computes a derivative along with a torch tensor."""
    torch = sys.modules["torch"]
    forward = torch.autograd.forward_ad
    if forward._current_level < 0:
        return False
    transforms = torch._C._functorch
    while transforms.is_batchedtensor(tensor):  # a batch of vmap's is not asked, but the tensor that it is of
        tensor = transforms.get_unwrapped(tensor)
    return forward.unpack_dual(tensor).tangent is not None


def require_no_gradient(tensor: Any, name: str) -> None:
    """Raise `ArgumentError` (``TK-ARRAY-002``) for a torch tensor whose gradient or tangent would be lost."""
    if tensor.requires_grad and sys.modules["torch"].is_grad_enabled():
        raise ArgumentError(
            f"{name} requires a gradient, which tilekit's kernels do not record; pass {name}.detach() or call under "
            "torch.no_grad()",
            code="TK-ARRAY-002",
        )
    if has_tangent(tensor):
        raise ArgumentError(
            f"{name} has a tangent of forward-mode differentiation, which tilekit's kernels would lose; pass "
            f"{name}.detach()",
            code="TK-ARRAY-002",
        )


def _negated(name: str) -> ArgumentError:
    return ArgumentError(
        f"{name} is a lazily negated view whose memory holds the opposite sign; pass {name}.resolve_neg()",
        code="TK-ARRAY-002",
    )


def _torch_kind(tensor: Any) -> str:
    layout = str(tensor.layout).removeprefix("torch.")
    return type(tensor).__name__ if layout == "strided" else f"{layout} tensor"


def _view_cupy(array: Any, name: str) -> ArrayView:
    memory = array.data
    return ArrayView(
        memory.ptr,
        array.shape,
        _in_elements(array.strides, array.itemsize, name),
        as_dtype(array.dtype, name),
        _CUDA[memory.device_id],
        "cupy",
        array,
    )


def _view_dlpack(array: Any, name: str) -> ArrayView:
    if array.__dlpack_device__()[0] == dlpack.ROCM:
        found = dlpack.exchange(array, name, _HIP_DEFAULT_STREAM, devices=(dlpack.ROCM,))
        return view_of_exchanged(found, array, _HIP[found.device[1]])
    found = dlpack.exchange(array, name)
    device_type, ordinal = found.device
    return view_of_exchanged(found, array, "cpu" if device_type == dlpack.CPU else _CUDA[ordinal])


def view_of_exchanged(found: dlpack.Exchanged, array: Any, device: Device) -> ArrayView:
    """Return the view of what an array's capsule holds."""
    return ArrayView(
        found.address,
        found.shape,
        found.strides,
        found.dtype,
        device,
        _root(type(array)),
        (found.capsule, array),
        found.writeable,
    )


def _view_cuda_interface(array: Any, name: str) -> ArrayView:
    return view_of_interface(array, name, _device_of)


def view_of_interface(array: Any, name: str, device_of: Callable[[int], Device]) -> ArrayView:
    """Return the view of an object with ``__cuda_array_interface__``; `device_of` says whose an address is."""
    # Version 3 of the interface, as numba's documentation defines it.
    interface = array.__cuda_array_interface__
    if interface.get("mask") is not None:
        raise masked(name)
    kind: Any = np.dtype(interface["typestr"])
    if kind.kind == "V":
        # bfloat16 and the 8-bit floats are anonymous bytes to NumPy: ask the array itself.
        kind = getattr(array, "dtype", kind)
    dtype = as_dtype(kind, name)
    address, read_only = interface["data"]
    shape = tuple(interface["shape"])
    byte_strides = interface.get("strides")
    strides = dlpack.c_strides(shape) if byte_strides is None else _in_elements(byte_strides, dtype.bytes, name)
    return ArrayView(address, shape, strides, dtype, device_of(address), _root(type(array)), array, not read_only)


def _device_of(address: int) -> Device:
    from tilekit.runtime import driver, hip

    if driver.why_unavailable() is not None and hip.why_unavailable() is None:
        return _HIP[hip.device_of(address)]
    return _CUDA[driver.device_of(address)]


_ADAPTERS: Final[dict[type, Callable[[Any, str], ArrayView]]] = {
    np.ndarray: _view_numpy,
    ArrayView: lambda view, _name: view,
}


class AddressInterface:
    """NumPy's array interface over an address: an ndarray of the right place and strides, its memory not touched."""

    def __init__(self, view: ArrayView) -> None:
        size = view.dtype.bytes
        self.owner = view.owner
        self.__array_interface__ = {
            "version": 3,
            "data": (view.address, not view.writeable),
            "shape": tuple(view.shape),
            "strides": tuple(stride * size for stride in view.strides),
            "typestr": f"<u{size}",
        }


def host_array(view: ArrayView) -> np.ndarray[Any, Any]:
    """Return an array on the CPU as a ``numpy.ndarray`` over the same memory, its type from ml_dtypes if need be."""
    if view.device != "cpu":
        raise ArgumentError(f"the array is {view.place}, and host_array takes arrays on the CPU", code="TK-ARRAY-003")
    if view.library == "numpy":
        array: np.ndarray[Any, Any] = view.owner
        return array
    return np.asarray(AddressInterface(view)).view(view.dtype.numpy)
