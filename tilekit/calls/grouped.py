"""The matmul of groups of rows."""

from __future__ import annotations

from typing import Any, TypedDict, Unpack, overload

import numpy.typing as npt

from tilekit.annotations import leaves_out_unknown, refuse_call, takes
from tilekit.arrays import fingerprint, resolve_stream, view_of
from tilekit.calls.kept import Array, Numpy, first_call
from tilekit.dtypes import DType
from tilekit.epilogue.functions import Activation
from tilekit.kernels.blockwise.arguments import GroupedBlockwiseArguments
from tilekit.kernels.compiled import CompiledKernel
from tilekit.kernels.dispatch import select
from tilekit.kernels.grouped.arguments import GroupedArguments
from tilekit.kernels.launch_cache import LaunchCache
from tilekit.kernels.matmul.any_config import AnyConfig
from tilekit.kernels.matmul.own import OwnComponents
from tilekit.kernels.written_arguments import epilogue_key
from tilekit.targets import PlaceName
from tilekit.tuning.lookup import tuned_config

_launches = LaunchCache()


class GroupedKernelKeywords(TypedDict, total=False):
    """What `grouped_kernel_for` takes by keyword."""

    counts: Any
    scale_a: Any
    scale_b: Any
    out: Any
    activation: Activation | None
    epilogue: Any
    out_dtype: Any
    components: OwnComponents | None
    arrays: dict[str, Any] | None
    config: AnyConfig | None
    target: PlaceName | None


class GroupedKeywords(GroupedKernelKeywords, total=False):
    """What `grouped_matmul` takes by keyword."""

    stream: Any


@overload
def grouped_matmul(a: Numpy, b: Any, ends: Any = None, **keywords: Unpack[GroupedKeywords]) -> npt.NDArray[Any]: ...


@overload
def grouped_matmul(a: Array, b: Any, ends: Any = None, **keywords: Unpack[GroupedKeywords]) -> Array: ...


@leaves_out_unknown
def grouped_matmul(
    a: Any,
    b: Any,
    ends: Any = None,
    *,
    counts: Any = None,
    scale_a: Any = None,
    scale_b: Any = None,
    out: Any = None,
    activation: Activation | None = None,
    epilogue: Any = None,
    out_dtype: Any = None,
    components: OwnComponents | None = None,
    arrays: dict[str, Any] | None = None,
    stream: Any = None,
    config: AnyConfig | None = None,
    target: PlaceName | None = None,
    **unknown: Any,
) -> Any:
    """Multiply groups of rows of `a`, each by its own matrix of `b`: the linear layers of a mixture of experts.

    Parameters
    ----------
    a
        With `ends`: (M, K), the groups' rows behind each other. With `counts`: (G, R, K), up to R rows a group. Rows of
        K are contiguous; but with `counts`, where R elements are multiples of 16 bytes, and on AMD chips, M may be: the
        rows of all groups then lie behind each other, as in a (K, G, R) array.
    b
        (G, K, N), a matrix a group. Either of the last two dimensions may be contiguous.
    ends
        G int32: one past each group's last row. They stay on the device; where they are in host memory they
        are checked.
    counts
        G int32: the rows of each group that are computed; the others of `out` are left as they are.
    scale_a, scale_b
        Both or neither: scales of blocks of 8-bit operands, as `tilekit.scaled_matmul` takes them: f32 of shapes
        (M, ⌈K/128⌉), with `counts` (G, R, ⌈K/128⌉), and (G, ⌈N/128⌉, ⌈K/128⌉).
    out
        (M, N) or (G, R, N); made new if None: uninitialised where nothing is computed, and NaN in NumPy arrays. sm_90a
        and sm_100a write whole 16 bytes of a row: N is a multiple of 8 for bf16 and f16, of 4 for f32.
    epilogue
        A Python function that `tilekit.epilogue` marks, called with its operands, as for `tilekit.matmul`: they
        broadcast to the result, and with `ends` too there may be columns of each group, (G, 1, N), and a value a group,
        (G, 1, 1). It may store several results, totals of rows, and of the columns of each group, (G, N).
    components, arrays
        As for `tilekit.matmul`. M of a payload's inputs are the rows of all groups: with `counts` G R. One that begins
        with the letter g has an entry for each group. None beside scales of blocks.
    activation, out_dtype, stream, config, target
        As for `tilekit.matmul`; there are no 8-bit outputs.

    Raises
    ------
    ArgumentError
        Naming the argument, what was given, what is legal, and the nearest legal value: also for bounds in host memory
        that are out of order or out of range. On a device they are not looked at before the kernel, which takes the
        nearest legal bound instead: an end before the last group's end makes a group empty, one beyond M ends with the
        last row, and a count is cut to 0 … R. Rows that belong to no group are left as they are.
    """
    if unknown:
        refuse_call(grouped_matmul, (a, b), unknown)
    key: Any = None
    if out is not None:
        bounds = ends if counts is None else counts
        try:
            written = None if epilogue is None else epilogue_key(epilogue)
            scales = None if scale_a is None and scale_b is None else (fingerprint(scale_a), fingerprint(scale_b))
            key = (
                *map(fingerprint, (a, b, bounds, out)),
                scales,
                counts is None,
                activation,
                written,
                out_dtype,
                components,
                None if arrays is None else tuple((name, fingerprint(array)) for name, array in arrays.items()),
                config,
                target,
            )
            cached = _launches.launches.get(key)
        except Exception:  # something that has no fingerprint, or no legal value: parsing it says what
            cached = key = None
        if cached is not None:
            first = out[0] if isinstance(out, tuple) else out
            cached.launch(cached.current_stream() if stream is None else resolve_stream(stream, view_of(first)))
            return out
    keywords: Any = {"counts": counts, "out": out, "activation": activation, "out_dtype": out_dtype}
    keywords |= {"epilogue": epilogue, "components": components, "arrays": arrays, "config": config, "target": target}
    arguments = _read(a, b, ends, scale_a=scale_a, scale_b=scale_b, **keywords)
    return first_call(arguments, stream, _launches, key)


@takes(GroupedKernelKeywords)
def grouped_kernel_for(a: Any, b: Any, ends: Any = None, **keywords: Unpack[GroupedKernelKeywords]) -> CompiledKernel:
    """Return the kernel that `grouped_matmul` launches for these arguments, as `kernel_for` does of `matmul`.

    Its ``bind(a, b, out, ends=)``, or ``counts=``, takes any groups.
    """
    kernel = select(_read(a, b, ends, memory=False, **keywords), tuned_config).kernel
    assert isinstance(kernel, CompiledKernel)
    return kernel


@takes(GroupedKernelKeywords)
def grouped_result_of(
    a: Any, b: Any, ends: Any = None, **keywords: Unpack[GroupedKernelKeywords]
) -> tuple[tuple[int, ...], DType]:
    """Return shape and element type of what `grouped_matmul` would return, as `result_of` does of `matmul`."""
    arguments = _read(a, b, ends, memory=False, **keywords)
    return arguments.out.shape, arguments.out.dtype


def _read(
    a: Any, b: Any, ends: Any, *, scale_a: Any = None, scale_b: Any = None, **keywords: Any
) -> GroupedArguments | GroupedBlockwiseArguments:
    """Read a call, of whichever of the two families."""
    if scale_a is None and scale_b is None:
        return GroupedArguments.parse(a, b, ends, **keywords)
    return GroupedBlockwiseArguments.parse(a, b, ends, scale_a=scale_a, scale_b=scale_b, **keywords)
