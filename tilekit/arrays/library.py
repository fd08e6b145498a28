"""What is asked of the array's library: the stream it is working on, and new memory in the order of that stream."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np

from tilekit.arrays import dlpack
from tilekit.arrays.view import ArrayView
from tilekit.dtypes import DTYPES, S32, U8, UE8M0, DType
from tilekit.emulator.core.errors import shown
from tilekit.errors import ArgumentError

__all__ = [
    "NewArrays",
    "current_stream",
    "empty_like_library",
    "hand_over",
    "memory_for",
    "new_arrays",
    "resolve_stream",
    "stream_getter",
]


def current_stream(view: ArrayView) -> int:
    """Return the handle of the stream on which the array's library is now working; 0 for arrays on the CPU."""
    if view.device == "cpu":
        return 0
    if view.library == "torch":
        return int(_torch_raw_stream()(view.device[1]))
    if view.library == "cupy":
        return int(sys.modules["cupy"].cuda.get_current_stream(view.device[1]).ptr)
    interface = getattr(view.owner, "__cuda_array_interface__", None) or {}
    return int(interface.get("stream") or (0 if view.device[0] == "hip" else dlpack.LEGACY_DEFAULT_STREAM))


def stream_getter(view: ArrayView) -> Callable[[], int]:
    """Return a quick way to ask for the library's current stream; for torch and CuPy it keeps no array alive."""
    if view.device != "cpu" and view.library == "torch":
        return functools.partial(_torch_raw_stream(), view.device[1])
    if view.device != "cpu" and view.library == "cupy":
        cuda, ordinal = sys.modules["cupy"].cuda, view.device[1]
        return lambda: int(cuda.get_current_stream(ordinal).ptr)
    return functools.partial(current_stream, view)


@functools.cache
def _torch_raw_stream() -> Callable[[int], int]:
    # What torch's own compiled kernels call: 0.1 us, where torch.cuda.current_stream() builds an object in 2 us.
    raw: Callable[[int], int] = sys.modules["torch"]._C._cuda_getCurrentRawStream
    return raw


def resolve_stream(stream: Any, view: ArrayView) -> int:
    """Return the handle of the stream to launch on.

    Parameters
    ----------
    stream : None, int or stream object
        None is the array library's current stream. An object has ``__cuda_stream__`` (cuda.core's protocol, version 0),
        ``cuda_stream`` (torch) or ``ptr`` (CuPy).
    view : ArrayView
        One of the call's arrays.

    Raises
    ------
    ArgumentError
        ``TK-ARRAY-005`` if it is none of these, or if the arrays lie on the CPU, where there are no streams.
    """
    if stream is None:
        return current_stream(view)
    if view.device == "cpu":
        raise ArgumentError(
            f"stream={shown(stream)} was given, but the arrays are {view.place}; leave it out", code="TK-ARRAY-005"
        )
    if isinstance(stream, int) and not isinstance(stream, bool) and 0 <= stream < 1 << 64:
        return stream
    try:
        handle = _handle_of(stream)
    except ArgumentError:
        raise
    except Exception:  # whatever an object does that says it is a stream, and is none
        handle = None
    if handle is not None:
        return handle
    raise ArgumentError(
        f"stream={shown(stream)} is no stream; pass None, a handle >= 0, or an object with __cuda_stream__ "
        "(torch.cuda.Stream and cupy.cuda.Stream will do)",
        code="TK-ARRAY-005",
    )


def _handle_of(stream: Any) -> int | None:
    """The handle that a stream object gives."""
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        version, handle = protocol() if callable(protocol) else protocol
        if version != 0:
            raise ArgumentError(
                f"stream speaks version {version} of __cuda_stream__; tilekit speaks version 0", code="TK-ARRAY-005"
            )
        return int(handle)
    for attribute in ("cuda_stream", "ptr"):
        if hasattr(stream, attribute):
            return int(getattr(stream, attribute))
    return None


@dataclass(frozen=True, slots=True, eq=False)
class NewArrays:
    """Makes uninitialised arrays of one shape, type and place; :func:`new_arrays` makes it. It keeps no array alive.

    Attributes
    ----------
    make : callable
        Returns a new array, its memory in the order of the library's current stream.
    address_of : callable
        Returns the address of an array that `make` returned.
    in_stream : callable
        Returns the context in which `make` obeys another stream, given by its handle.
    """

    make: Callable[[], Any]
    address_of: Callable[[Any], int]
    in_stream: Callable[[int], AbstractContextManager[Any]]

    def __call__(self, stream: int | None = None) -> Any:
        """Return a new array, its memory in the order of ``stream`` (default: the library's current stream)."""
        if stream is None:
            return self.make()
        with self.in_stream(stream):
            return self.make()


def new_arrays(view: ArrayView, shape: tuple[int, ...], dtype: DType) -> NewArrays:
    """Return the maker of arrays, C-ordered, of this shape and type, of the library and on the device of ``view``.

    NumPy's are NaN (of integers all bits set) where nothing is written; those of other libraries are as memory is.

    Device memory comes from the library's own pool in the order of a stream, so an array may be written by work
    launched on that stream at once. For a library known through DLPack or ``__cuda_array_interface__`` alone they are
    CuPy arrays, which :func:`hand_over` turns into the library's own after the launch.

    Raises
    ------
    ArgumentError
        ``TK-ARRAY-006`` when the library has no such element type, or CuPy is needed and not installed; for CuPy's
        own missing types, and for NumPy's arrays that find no memory, when an array is made.
    """
    if view.library == "torch":
        return _new_torch(view, shape, dtype)
    if view.device == "cpu":
        make = functools.partial(_new_numpy, shape, dtype)
        return NewArrays(make, lambda array: int(array.ctypes.data), lambda _: _NO_CONTEXT)
    return _new_cupy(view, shape, dtype)


def empty_like_library(view: ArrayView, shape: tuple[int, ...], dtype: DType, stream: int | None = None) -> Any:
    """Return one new array as :func:`new_arrays` makes them, in the order of ``stream`` (default: the current one)."""
    return new_arrays(view, shape, dtype)(stream)


def _cannot_allocate(reason: str) -> ArgumentError:
    return ArgumentError(f"cannot allocate the result: {reason}; pass out= or another out_dtype", code="TK-ARRAY-006")


@contextmanager
def memory_for(what: str, shape: Sequence[int], dtype: DType) -> Iterator[None]:
    """Raise `ArgumentError` (``TK-ARRAY-006``) where NumPy finds no memory for an array of this shape."""
    try:
        yield
    except (MemoryError, ValueError):  # the latter for more bytes than there are addresses
        raise ArgumentError(
            f"{what} of shape {tuple(shape)} takes {prod(shape) * dtype.bytes / 1e9:.3g} GB of {dtype}, for which "
            "there is no memory; make the problem smaller",
            code="TK-ARRAY-006",
        ) from None


_MOST_FILLED: Final = 1 << 26
"""Bytes of a new array that is filled at most: the emulator writes no larger one in its time."""


def _new_numpy(shape: tuple[int, ...], dtype: DType) -> Any:
    """A new array that is NaN, or -1, where nothing is written: what a kernel leaves out is seen."""
    with memory_for("a result", shape, dtype):
        made = np.empty(shape, dtype.numpy)
    if made.nbytes <= _MOST_FILLED:
        made.reshape(-1).view(np.uint8).fill(0xFF)
    return made


def _new_torch(view: ArrayView, shape: tuple[int, ...], dtype: DType) -> NewArrays:
    torch = sys.modules["torch"]
    torch_type = _torch_types().get(dtype)
    if torch_type is None:
        raise _cannot_allocate(f"this torch has no {dtype.long_name}")

    def in_stream(stream: int) -> AbstractContextManager[Any]:
        if device == "cpu" or stream == _torch_raw_stream()(device[1]):
            return _NO_CONTEXT
        external = torch.cuda.ExternalStream(stream, device=device[1])
        context: AbstractContextManager[Any] = torch.cuda.stream(external)
        return context

    device = view.device
    layout = tuple(shape), tuple(dlpack.c_strides(shape)), torch_type
    # The quickest of torch's public calls: two thirds of torch.empty's time, which works the strides out.
    make = functools.partial(torch.empty_strided, *layout[:2], dtype=torch_type, device=view.owner.device)
    # What torch's own compiled kernels call is twice as quick: it parses no arguments, and asks no dispatcher.
    guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    quick = getattr(guards, "_empty_strided_cpu" if device == "cpu" else "_empty_strided_cuda", None)
    if quick is None:
        return NewArrays(make, torch.Tensor.data_ptr, in_stream)
    if device == "cpu":
        return NewArrays(functools.partial(quick, *layout), torch.Tensor.data_ptr, in_stream)
    current, ordinal = torch._C._cuda_getDevice, device[1]

    def make_quickly() -> Any:
        return quick(*layout) if current() == ordinal else make()  # it knows the current device alone

    return NewArrays(make_quickly, torch.Tensor.data_ptr, in_stream)


@functools.cache
def _torch_types() -> dict[DType, Any]:
    torch = sys.modules["torch"]
    known = (*DTYPES, U8, UE8M0, S32)
    return {dtype: getattr(torch, dtype.long_name) for dtype in known if hasattr(torch, dtype.long_name)}


def _new_cupy(view: ArrayView, shape: tuple[int, ...], dtype: DType) -> NewArrays:
    try:
        import cupy
    except ImportError:
        raise _cannot_allocate(f"new arrays for {view.library} are made through CuPy, which is not installed") from None
    ordinal = view.device[1]

    def make() -> Any:
        try:
            with cupy.cuda.Device(ordinal):
                return cupy.empty(shape, dtype=dtype.numpy)
        except (TypeError, ValueError) as error:
            raise _cannot_allocate(f"CuPy has no {dtype.long_name} ({error})") from None

    @contextmanager
    def in_stream(stream: int) -> Iterator[None]:
        with cupy.cuda.Device(ordinal):  # a device has a current stream of its own
            is_current = stream == cupy.cuda.get_current_stream().ptr
            with _NO_CONTEXT if is_current else _cupy_external(cupy.cuda, stream):
                yield

    return NewArrays(make, lambda array: int(array.data.ptr), in_stream)


def _cupy_external(cuda: Any, handle: int) -> Any:
    from_external = getattr(getattr(cuda, "Stream", None), "from_external", None)
    # CuPy 14 deprecates ExternalStream; before, there is nothing else.
    return cuda.ExternalStream(handle) if from_external is None else from_external(_Handle(handle))


class _Handle:
    """A stream handle as an object of the ``__cuda_stream__`` protocol, version 0."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._handle


_NO_CONTEXT: Final[AbstractContextManager[Any]] = nullcontext()


def hand_over(array: Any, view: ArrayView) -> Any:
    """Return ``array``, made by :func:`empty_like_library`, as an array of the library of ``view``.

    Call it after the launch: the exchange is where the library's own stream is made to wait for the work. The
    library's ``from_dlpack`` is used where it has one, in its array namespace or its package; otherwise the CuPy array
    is returned.
    """
    if view.library in ("numpy", "torch", "cupy"):
        return array
    owner = view.owner[1] if isinstance(view.owner, tuple) else view.owner
    namespaces = []
    if hasattr(owner, "__array_namespace__"):
        namespaces.append(owner.__array_namespace__())
    package = sys.modules.get(view.library)
    namespaces += [package, getattr(package, "dlpack", None)]
    for namespace in namespaces:
        if hasattr(namespace, "from_dlpack"):
            return namespace.from_dlpack(array)
    return array
