"""What calls have in common: launches that earlier calls with the same arguments have left, and the first one."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, TypeVar

import numpy.typing as npt

from tilekit.arrays import NewArrays, fingerprint, hand_over, resolve_stream, view_of
from tilekit.kernels.arguments import Arguments
from tilekit.kernels.dispatch import select
from tilekit.kernels.epilogue_arguments import read_scale
from tilekit.kernels.launch_cache import LaunchCache
from tilekit.kernels.written_arguments import epilogue_key
from tilekit.tuning.first_call import tuned_or_timed

Array = TypeVar("Array")
"""An array of any library: results are of the library of the first operand."""
Numpy = npt.NDArray[Any]


def kept(
    cache: LaunchCache, operands: tuple[Any, ...], keywords: Any, stream: Any
) -> tuple[bool, Hashable, NewArrays | None]:
    """Launch what an earlier call with the same arguments has left in a cache; return whether there was one.

    Then its output is in `keywords`. Else come the key to keep the launch by, and what made a new output there.
    """
    out = keywords.get("out")
    key: Hashable = None
    new = cached = None
    try:
        if not getattr(keywords.get("scale"), "is_cuda", False):
            number = read_scale(keywords.get("scale"))
            if isinstance(number, float):  # the value counts, not the host memory it lies in
                keywords["scale"] = number
        arrays = *operands, out
        key = (
            *(None if array is None else fingerprint(array) for array in arrays),
            *((name, _part_of_key(name, value)) for name, value in keywords.items() if name != "out"),
        )
        if out is None:
            new = cache.outputs.get(key)
        else:
            cached = cache.launches.get(key)
    except Exception:  # something that has no fingerprint, or no legal value: parsing it says what
        key = None
    if new is not None:
        out = new.make() if stream is None else new(resolve_stream(stream, view_of(operands[0])))
        cached = cache.launches.get((new, new.address_of(out)))
    keywords["out"] = out
    if cached is not None:
        first = out[0] if isinstance(out, (tuple, list)) else out
        cached.launch(cached.current_stream() if stream is None else resolve_stream(stream, view_of(first)))
    return cached is not None, key, new


def _part_of_key(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name in ("bias", "scale", "residual"):
        return fingerprint(value)
    if name == "epilogue":
        return epilogue_key(value)
    return tuple(value) if isinstance(value, list) else value


def first_call(
    arguments: Arguments, stream: Any, cache: LaunchCache, key: Hashable, new: NewArrays | None = None
) -> Any:
    """Select, bind and launch what no earlier call has, and keep the launch by its key; return the result.

    `new` made the output that the arguments have; without an output it is made here.
    """
    arguments.require_apart()
    if arguments.result is None:
        own = arguments.a.device == "cpu" or arguments.a.library in ("torch", "cupy")
        if stream is not None or not own:  # memory of another library must be in the order of the operands' stream
            stream = resolve_stream(stream, arguments.a)
        new = arguments.new_output()
        arguments = arguments.into(new(stream))
    whole = arguments.completed(stream if arguments.a.device != "cpu" else None)
    selection = select(whole, tuned_or_timed)
    assert isinstance(selection.arguments, Arguments), "it was one"
    ready = selection.arguments.prepared(stream)
    plan = selection.kernel.plan(ready)
    plan(stream)
    # What is laid out anew at each call, or stored in arrays that are, is another launch each time.
    same = ready is selection.arguments and whole is arguments
    if plan.cacheable is not None and key is not None and same:
        if new is not None:
            cache.keep_output(key, new)
            key = (new, new.address_of(plan.out))
        cache.keep_launch(key, plan.cacheable)
    if new is None or arguments.out.library == arguments.a.library:
        return plan.out
    with new.in_stream(stream or 0):  # where the exchange makes the other library wait
        if isinstance(plan.out, tuple):
            return tuple(hand_over(one, arguments.a) for one in plan.out)
        return hand_over(plan.out, arguments.a)
