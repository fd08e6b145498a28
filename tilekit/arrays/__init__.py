"""Arrays in, arrays out: one view of an array, whichever library it comes from, and new arrays of that same library.

NumPy arrays and torch tensors on the CPU run on the emulator; torch tensors, CuPy arrays and whatever speaks DLPack or
``__cuda_array_interface__`` run on their GPU. No library is imported here unless an object of its own has come in.

Order in time. Work is launched on the current stream of the array's library (:func:`current_stream`), so it comes after
whatever made the inputs and before whatever reads the result. An explicit ``stream=`` is the caller's word that the
inputs are ready there. Arrays that come through plain DLPack are made ready on the legacy default stream.
"""

from tilekit.arrays.checks import (
    in_place,
    overlap,
    require_apart,
    require_dtype,
    require_output,
    require_result,
    require_same_place,
)
from tilekit.arrays.dlpack import c_strides
from tilekit.arrays.fingerprint import fingerprint, reader_of
from tilekit.arrays.library import (
    NewArrays,
    current_stream,
    empty_like_library,
    hand_over,
    memory_for,
    new_arrays,
    resolve_stream,
    stream_getter,
)
from tilekit.arrays.view import (
    ArrayView,
    Device,
    has_tangent,
    host_array,
    is_array,
    masked,
    require_no_gradient,
    view_of,
    view_of_fake,
    view_of_int32,
)

__all__ = [
    "ArrayView",
    "Device",
    "NewArrays",
    "c_strides",
    "current_stream",
    "empty_like_library",
    "fingerprint",
    "hand_over",
    "has_tangent",
    "host_array",
    "in_place",
    "is_array",
    "masked",
    "memory_for",
    "new_arrays",
    "overlap",
    "reader_of",
    "require_apart",
    "require_dtype",
    "require_no_gradient",
    "require_output",
    "require_result",
    "require_same_place",
    "resolve_stream",
    "stream_getter",
    "view_of",
    "view_of_fake",
    "view_of_int32",
]
