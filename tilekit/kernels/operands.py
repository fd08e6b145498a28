"""What a kernel of the caller's is called with: operands by name, type and shape; and how arrays become a call."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilekit.annotations import call_checked
from tilekit.arrays import ArrayView, empty_like_library, require_output, require_same_place, view_of
from tilekit.dtypes import U8, DType, as_dtype
from tilekit.errors import ArgumentError
from tilekit.tile_io.tma import TMA_ALIGNMENT
from tilekit.tiles.call import Matrix

RESERVED = ("device", "emulator", "seed", "statistics", "stream", "tiles", "timeline")
"""Words of a launch, which no operand is called."""


@call_checked
@dataclass(frozen=True)
class Operand:
    """An array of a call.

    Attributes
    ----------
    name
        As components, and callers, call it: the operands of a product are ``a`` and ``b``, its output is ``d``.
    dtype
        Element type.
    shape
        A letter for each extent, the last one contiguous: ``"mk"``. Operands agree in an extent of one letter; m, n
        and k are those of the product. Of three letters the first counts the matrices of a batch: ``"bmk"``.

    Raises
    ------
    ArgumentError
        ``TK-COMP-001`` for a name or a shape that cannot be; ``TK-DTYPE-001`` for an unknown type.
    """

    name: str
    dtype: DType
    shape: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", as_dtype(self.dtype, "dtype"))
        if not (isinstance(self.name, str) and self.name.isidentifier() and self.name not in RESERVED):
            legal = f"a Python name other than {', '.join(RESERVED)}"
            raise ArgumentError.of("name", self.name, legal=legal, code="TK-COMP-001")
        letters = self.shape if isinstance(self.shape, str) else ""
        if not (letters.isalpha() and len(letters) == len(set(letters)) <= 3) or _batch(letters) in tuple("mnk"):
            legal = "one or two different letters, the contiguous extent last, or a batch's before them"
            raise ArgumentError.of(f"{self.name}'s shape", self.shape, legal=legal, nearest="mk", code="TK-COMP-001")


class Input(Operand):
    """An array that the kernel reads."""


@call_checked
@dataclass(frozen=True)
class Output(Operand):
    """An array that the kernel writes; made where the caller gives none.

    Attributes
    ----------
    own
        Letters of its shape that no input has: then the caller gives it.
    """

    own: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.own, str) or set(self.own) - set(self.shape):
            legal = f"letters of its shape, {self.shape!r}"
            raise ArgumentError.of(f"{self.name}'s own", self.own, legal=legal, nearest="", code="TK-COMP-001")


@dataclass(frozen=True)
class Arrays:
    """The arrays of a call, checked.

    Attributes
    ----------
    given
        What the caller's library knows each of them as.
    views
        Of each.
    extents
        By letter.
    batches
        Matrices of a batch; 1 where no operand has a batch.
    """

    given: dict[str, Any]
    views: dict[str, ArrayView]
    extents: dict[str, int]
    batches: int = 1

    def matrices(self) -> dict[str, Matrix]:
        """The arrays of two and three dimensions, as components see them."""
        return matrices_of(self.views)

    @property
    def product(self) -> tuple[int, int, int]:
        """M, N and K, 1 for a letter that no operand has."""
        m, n, k = (self.extents.get(letter, 1) for letter in "mnk")
        return m, n, k

    @property
    def flops(self) -> float:
        """Of a product of these extents."""
        m, n, k = self.product
        return 2.0 * m * n * k * self.batches


def check_operands(operands: Sequence[Operand]) -> tuple[Operand, ...]:
    """Check the operands of a kernel against each other.

    Raises
    ------
    ArgumentError
        ``TK-COMP-001``: one name twice, no output, an extent of an output that no input has, or something else.
    """
    batch = next((letter for operand in operands if (letter := _batch(getattr(operand, "shape", "")))), "")
    for operand in operands:
        if not isinstance(operand, (Input, Output)):
            raise ArgumentError.of("operands", operand, legal="Input(...) and Output(...)", code="TK-COMP-001")
    for operand in operands:
        if batch and (batch in operand.shape[-2:] or _batch(operand.shape) not in ("", batch)):
            raise ArgumentError.of(
                f"{operand.name}'s shape",
                operand.shape,
                legal=f"{batch!r}, which counts the matrices of a batch, first of three letters or not at all",
                code="TK-COMP-001",
            )
    names = [operand.name for operand in operands]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ArgumentError.of("operands", twice[0], legal="each name once", code="TK-COMP-001")
    known = {letter for operand in operands if isinstance(operand, Input) for letter in operand.shape}
    outputs = [operand for operand in operands if isinstance(operand, Output)]
    if not outputs:
        raise ArgumentError.of("operands", names, legal="at least one Output", code="TK-COMP-001")
    for output in outputs:
        for letter in set(output.shape) - known - set(output.own):
            legal = f"letters of inputs, not {letter!r}; or own={letter!r}, of an output that callers give"
            raise ArgumentError.of(f"{output.name}'s shape", output.shape, legal=legal, code="TK-COMP-001")
    return tuple(operands)


def read_arrays(kernel: str, operands: Sequence[Operand], arrays: Sequence[Any], named: Mapping[str, Any]) -> Arrays:
    """Match a call's arrays with the kernel's operands, and make the outputs that it does not have.

    Raises
    ------
    ArgumentError
        ``TK-COMP-002`` for arrays too few, too many or of unknown names, ``TK-COMP-003`` for one that is not as it was
        declared, and what `tilekit.arrays` raises.
    """
    given = _matched(kernel, operands, arrays, named)
    extents: dict[str, tuple[int, str]] = {}
    views = {}
    for operand in operands:
        if given.get(operand.name) is not None:
            views[operand.name] = view_of(given[operand.name], operand.name)
            if isinstance(operand, Input):
                _check_view(operand, views[operand.name], extents)
    sizes = {letter: extent for letter, (extent, _) in extents.items()}
    inputs = [(operand.name, views[operand.name]) for operand in operands if isinstance(operand, Input)]
    for operand in operands:
        if not isinstance(operand, Output):
            continue
        if operand.name in views:
            own = zip(operand.shape, views[operand.name].shape, strict=False)
            sizes |= {letter: extent for letter, extent in own if letter in operand.own and letter not in sizes}
        missing = [letter for letter in operand.shape if letter not in sizes]
        if missing:
            raise ArgumentError(
                f"{kernel}: {operand.name} is not given, and its extent {missing[0]} is its own; nearest: "
                f"{operand.name}= an array of shape ({', '.join(operand.shape)})",
                code="TK-COMP-002",
            )
        shape = tuple(sizes[letter] for letter in operand.shape)
        if 0 in shape:
            letter = operand.shape[shape.index(0)]
            raise ArgumentError(
                f"{kernel}: {letter} = 0 leaves {operand.name} without elements; a launch has at least one. Nearest: 1",
                code="TK-COMP-003",
            )
        if operand.name not in views:
            given[operand.name] = empty_like_library(inputs[0][1], shape, operand.dtype)
            views[operand.name] = view_of(given[operand.name], operand.name)
        _check_view(operand, views[operand.name], extents)
        output = replace(views[operand.name], dtype=operand.dtype)  # bytes are what the declaration says
        require_output(output, shape, operand.dtype, inputs, operand.name)
        inputs.append((operand.name, views[operand.name]))  # outputs do not overlap each other either
    require_same_place(inputs)
    batch = next((letter for operand in operands if (letter := _batch(operand.shape))), "")
    return Arrays(given, views, sizes, sizes[batch] if batch else 1)


def read_inputs(
    whose: str, operands: Sequence[Operand], named: Mapping[str, Any], extents: Mapping[str, tuple[int, str]]
) -> dict[str, ArrayView]:
    """Match the arrays of a call, by name, with inputs, whose extents are known: each, and of what.

    Raises
    ------
    ArgumentError
        As `read_arrays`.
    """
    given, known = _matched(whose, operands, (), named), dict(extents)
    views = {operand.name: view_of(given[operand.name], operand.name) for operand in operands}
    for operand in operands:
        _check_view(operand, views[operand.name], known)
    return views


def matrices_of(views: Mapping[str, ArrayView]) -> dict[str, Matrix]:
    """The arrays of two and three dimensions, as components see them."""
    return {name: _matrix(name, view) for name, view in views.items() if len(view.shape) > 1}


def _matched(
    kernel: str, operands: Sequence[Operand], arrays: Sequence[Any], named: Mapping[str, Any]
) -> dict[str, Any]:
    inputs = [operand.name for operand in operands if isinstance(operand, Input)]
    names = [operand.name for operand in operands]
    takes = f"{kernel} takes {', '.join(inputs)}" + (f", and by name {', '.join(names)}" if names != inputs else "")
    if len(arrays) > len(inputs):
        raise ArgumentError(f"{takes}; given {len(arrays)} arrays without a name", code="TK-COMP-002")
    given = dict(zip(inputs, arrays, strict=False))
    for name, array in named.items():
        if name in given:
            raise ArgumentError(f"{takes}; {name} was given twice", code="TK-COMP-002")
        if name not in names:
            near = difflib.get_close_matches(name, names, 1, 0.0)
            raise ArgumentError(f"{takes}; there is no {name}; nearest: {near[0]}", code="TK-COMP-002")
        given[name] = array
    missing = [name for name in inputs if given.get(name) is None]
    if missing:
        raise ArgumentError(f"{takes}; missing: {', '.join(missing)}", code="TK-COMP-002")
    return given


def _check_view(operand: Operand, view: ArrayView, extents: dict[str, tuple[int, str]]) -> None:
    """Check an array against its declaration, and the extents against those known before."""
    name, declared = (
        operand.name,
        f"{operand.name} is declared as {operand.dtype} of shape ({', '.join(operand.shape)})",
    )
    # Bytes are what the declaration says that they are.
    same = view.dtype is operand.dtype or (view.dtype is U8 and operand.dtype.numpy == U8.numpy)
    if not same or len(view.shape) != len(operand.shape):
        raise ArgumentError(f"{declared}; given {view.dtype} of shape {tuple(view.shape)}", code="TK-COMP-003")
    for letter, extent in zip(operand.shape, view.shape, strict=True):
        known, other = extents.setdefault(letter, (extent, name))
        if known != extent:
            raise ArgumentError(
                f"{declared}; {letter} is {extent} in {name} and {known} in {other}; nearest: {known}",
                code="TK-COMP-003",
            )
    contiguous = view.strides[-1] == 1 or view.shape[-1] <= 1 or 0 in view.shape
    if not contiguous or any(stride < 0 for stride in view.strides[:-1]):
        raise ArgumentError(
            f"{declared}; given strides {tuple(view.strides)} (elements): the last dimension must be contiguous, and "
            "no other may run backwards. Nearest: a copy in C order",
            code="TK-COMP-003",
        )


def _matrix(name: str, view: ArrayView) -> Matrix:
    *batch, rows, columns = view.shape
    size = view.dtype.bytes
    plain = rows <= 1 or 0 in view.shape  # then the stride between rows means nothing
    pitch = -(-max(1, columns) * size // TMA_ALIGNMENT) * TMA_ALIGNMENT if plain else view.strides[-2] * size
    batch_pitch = view.strides[0] * size if batch and batch[0] > 1 else 0
    batches = batch[0] if batch_pitch else 1  # a broadcast batch is one matrix
    return Matrix(name, view.dtype, (columns, rows), pitch, batch_pitch, batches, "k")


def _batch(shape: str) -> str:
    """The letter of a shape that counts the matrices of a batch; none of a matrix or a vector."""
    return shape[0] if isinstance(shape, str) and len(shape) == 3 else ""
