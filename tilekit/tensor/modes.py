"""The arithmetic of the layout algebra, on flat lists of modes.

A mode ``shape:stride`` is the function ``i -> i * stride`` on ``0 <= i < shape``; a list of modes is their sum over
the colexicographic coordinate. `Layout` adds hierarchy on top and is what other code uses. The operations and their
conditions are those of CuTe ("Layout Algebra" in the CUTLASS documentation; Cecka, "CuTe Layout Representation and
Algebra"), except that nothing here is ever silently wrong: a request that has no exact answer raises `LayoutError`.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tilekit.tensor.nested import LayoutError, nearest_divisors


class Mode(NamedTuple):
    """One ``shape:stride`` pair of integers."""

    shape: int
    stride: int

    def __str__(self) -> str:
        return f"{self.shape}:{self.stride}"


def described(modes: Sequence[Mode]) -> str:
    """Return `modes` in the notation ``(4,2):(1,8)``."""
    if len(modes) == 1:
        return str(modes[0])
    return f"({','.join(str(m.shape) for m in modes)}):({','.join(str(m.stride) for m in modes)})"


def coalesced(modes: Sequence[Mode]) -> list[Mode]:
    """Return the shortest list of modes that is the same function of the colexicographic index."""
    out: list[Mode] = []
    for mode in modes:
        if mode.shape == 1:
            continue
        if out and out[-1].shape * out[-1].stride == mode.stride:
            out[-1] = Mode(out[-1].shape * mode.shape, out[-1].stride)
        else:
            out.append(mode)
    return out or [Mode(1, 0)]


def period(modes: Sequence[Mode]) -> int:
    """Return the extent of the largest stride: copies of `modes` this far apart interleave or follow one another."""
    return max((m.shape * m.stride for m in modes if m.shape > 1 and m.stride > 0), default=1)


def composed(outer: Sequence[Mode], inner: Sequence[Mode]) -> list[list[Mode]]:
    """Return, for every mode of `inner`, the modes that replace it in the composition ``outer(inner(i))``.

    The caller guarantees that every value of `inner` lies in the domain of `outer`.

    Raises
    ------
    LayoutError
        If no layout with the profile of `inner` equals the pointwise composition: a stride that neither divides a
        mode of `outer` nor is divisible by it, a shape that leaves such a mode half way, or modes of `inner` whose
        sum carries from one mode of `outer` into the next.
    """
    outer = coalesced(outer)
    reached = [0] * len(outer)
    result = [_composed_mode(outer, mode, reached) for mode in inner]
    for k, (extent, last) in enumerate(zip(outer, reached, strict=True)):
        if last >= extent.shape:
            raise LayoutError(
                f"compose: together, the modes of {described(inner)} reach index {last} in mode {k} ({extent}) of "
                f"{described(outer)}, whose last index is {extent.shape - 1}: each mode alone stays inside, but their "
                f"sum carries into mode {k + 1}, so no layout of this shape equals the pointwise composition"
            )
    return result


def _composed_mode(outer: Sequence[Mode], inner: Mode, reached: list[int]) -> list[Mode]:
    """Walk `inner` through the modes of `outer`, adding to `reached` the largest index that it takes in each."""
    count, step = inner
    if count == 1 or step == 0:
        return [Mode(count, 0)]
    result: list[Mode] = []
    for k, (extent, stride) in enumerate(outer):
        if (count - 1) * step < extent:
            # All that is left stays inside this mode, whatever divides what: the condition of divisibility that the
            # static algebra would ask for is only apparently violated.
            reached[k] += (count - 1) * step
            return [*result, Mode(count, step * stride)]
        if step % extent == 0:
            step //= extent
            continue
        where = f"compose: {inner} across mode {k} ({Mode(extent, stride)}) of {described(outer)}: "
        if extent % step:
            raise LayoutError(
                f"{where}stride {step} neither divides the extent {extent} nor is a multiple of it "
                f"(nearest legal strides there: {_nearest_steps(extent, step)})"
            )
        taken = extent // step
        if count % taken:
            below, above = count // taken * taken, -(-count // taken) * taken
            raise LayoutError(
                f"{where}each pass over the mode takes {taken} indices, which does not divide the {count} wanted "
                f"(nearest legal shapes: {below} or {above})"
            )
        reached[k] += (taken - 1) * step
        result.append(Mode(taken, step * stride))
        count //= taken
        step = 1
    raise AssertionError("composed() was given an inner layout that leaves the domain of the outer one")


def _nearest_steps(extent: int, step: int) -> str:
    if step < extent:
        return nearest_divisors(extent, step)
    return f"{step // extent * extent} or {-(-step // extent) * extent}"


def complemented(modes: Sequence[Mode], codomain: int) -> list[Mode]:
    """Return the modes, in ascending stride, that fill what `modes` leave open of ``range(codomain)``.

    `codomain` is rounded up to a whole number of periods of `modes`.

    Raises
    ------
    LayoutError
        If some stride is not a multiple of what the modes of smaller stride cover, so that the gaps are not modes.
    """
    covered = 1
    result: list[Mode] = []
    for mode in sorted((m for m in modes if m.shape > 1 and m.stride > 0), key=lambda m: (m.stride, m.shape)):
        if mode.stride % covered:
            raise LayoutError(
                f"complement of {described(modes)}: the stride of mode {mode} is not a multiple of {covered}, the "
                f"extent of the modes of smaller stride (nearest legal strides: {_nearest_multiples(mode, covered)})"
            )
        result.append(Mode(mode.stride // covered, covered))
        covered = mode.shape * mode.stride
    result.append(Mode(-(-codomain // covered), covered))
    return coalesced(result)


def _nearest_multiples(mode: Mode, covered: int) -> str:
    multiples = (mode.stride // covered * covered, -(-mode.stride // covered) * covered)
    return " or ".join(str(m) for m in multiples if m)


def inverted(modes: Sequence[Mode]) -> list[Mode]:
    """Return the longest run of modes R with ``modes(R(i)) == i``, starting at ``i == 0``."""
    strided: list[tuple[Mode, int]] = []
    index_stride = 1
    for mode in modes:
        strided.append((mode, index_stride))
        index_stride *= mode.shape
    reached = 1
    result: list[Mode] = []
    for mode, index_stride in sorted(strided, key=lambda pair: (pair[0].stride, -pair[0].shape)):
        if mode.shape == 1 or mode.stride < reached:
            continue
        if mode.stride > reached:
            break
        result.append(Mode(mode.shape, index_stride))
        reached *= mode.shape
    return coalesced(result)
