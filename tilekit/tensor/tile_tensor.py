"""`TileTensor`: where the elements of a tile are, in whichever memory it lives."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from functools import reduce
from math import gcd
from typing import Literal, overload

from tilekit.tensor import nested
from tilekit.tensor.draw import Picture, in_notebook, picture_of_offsets
from tilekit.tensor.dtypes import ElementType, element_type
from tilekit.tensor.layout import Layout
from tilekit.tensor.nested import CoordinateError, IntTuple, LayoutError
from tilekit.tensor.swizzle import Swizzle, SwizzledLayout

_SCALAR = Layout(1, 0)


class AddressSpace(Enum):
    """The memories that a tile can live in."""

    GLOBAL = "global"
    SHARED = "shared"
    REGISTER = "register"
    TENSOR = "tensor"


@dataclass(frozen=True, slots=True, init=False)
class TileTensor:
    """A tile: a layout over elements of one type, swizzled or not, at an offset from a base in some memory.

    It answers where things are and emits nothing. Coordinates go through `layout`, are moved by `offset`, and only
    then swizzled, so that any part of a swizzled tile swizzles by its place in the whole.

    Parameters
    ----------
    layout : Layout
        From coordinates to offsets in elements.
    dtype : ElementType or str
        The type of an element: a name such as ``"bf16"``, or any object with a `name` and `bits`.
    space : AddressSpace
        The memory.
    swizzle : Swizzle, optional
        A permutation of *byte* offsets, such as ``Swizzle.tma(128)``; none if left out.
    base : object, optional
        Where offset 0 is. Anything: this class only hands it on.
    offset : int, optional
        Elements from `base` to the start of this tile, before the swizzle.
    element : Layout, optional
        What each coordinate stands for: one element, or a vector of them (see `vectorize`).
    base_alignment : int, optional
        A power of two, in bytes, that divides the address of `base`. If left out: the period of the swizzle, or one
        element.

    Raises
    ------
    LayoutError
        If the swizzle would split an element, or the base is aligned to less than the swizzle's period.

    Examples
    --------
    >>> a = TileTensor(Layout.row_major(64, 64), "bf16", AddressSpace.SHARED, swizzle=Swizzle.tma(128))
    >>> a.bytes, a.alignment
    (8192, 1024)
    >>> a.byte_offset(5, 0), a.byte_offset(5, 8)
    (720, 704)
    """

    layout: Layout
    dtype: ElementType
    space: AddressSpace
    swizzle: Swizzle
    base: object
    offset: int
    element: Layout
    base_alignment: int

    def __init__(
        self,
        layout: Layout,
        dtype: ElementType | str,
        space: AddressSpace,
        *,
        swizzle: Swizzle | None = None,
        base: object = None,
        offset: int = 0,
        element: Layout = _SCALAR,
        base_alignment: int | None = None,
    ) -> None:
        dtype = element_type(dtype)
        swizzle = swizzle or Swizzle.identity()
        swizzle.for_elements(dtype.bits)
        least = swizzle.period if swizzle.bits else 1
        if base_alignment is None:
            base_alignment = max(least, dtype.bits // 8, 1)
        if base_alignment < least or base_alignment & (base_alignment - 1):
            raise LayoutError(
                f"base_alignment is {base_alignment} bytes; it must be a power of two, and for {swizzle} "
                f"at least its period (nearest legal value: {max(least, 1 << (base_alignment - 1).bit_length())})"
            )
        if offset < 0:
            raise LayoutError(f"offset is {offset}; the smallest legal value is 0")
        values = (layout, dtype, space, swizzle, base, offset, element, base_alignment)
        for name, value in zip(self.__slots__, values, strict=True):
            object.__setattr__(self, name, value)

    # What it is

    @property
    def shape(self) -> IntTuple:
        """The shape of the coordinates: of elements, or of vectors after `vectorize`."""
        return self.layout.shape

    @property
    def rank(self) -> int:
        """The number of modes."""
        return self.layout.rank

    @property
    def size(self) -> int:
        """The number of elements, counting those of every vector."""
        return self.layout.size * self.element.size

    @property
    def bytes(self) -> int:
        """How many bytes of data the tile holds: what a copy of it transfers."""
        return -(-self.size * self.dtype.bits // 8)

    @property
    def footprint(self) -> int:
        """How many bytes from the base the tile reaches: what an allocation at the base needs."""
        elements = self.offset + self.layout.cosize + self.element.cosize - 1
        reached = -(-elements * self.dtype.bits // 8)
        return -(-reached // self.swizzle.span) * self.swizzle.span

    @property
    def alignment(self) -> int:
        """The largest power of two, in bytes, that is sure to divide the address of the tile's start.

        The start is where `offset` lies before the swizzle: what a TMA box or a matrix descriptor is pointed at.
        """
        return _power_of_two(gcd(8 * self.base_alignment, self.offset * self.dtype.bits))

    @property
    def access_alignment(self) -> int:
        """The largest power of two, in bytes, that is sure to divide the address of every coordinate.

        It limits how wide a load or store of one element or vector may be.
        """
        steps = (m.stride * self.dtype.bits for m in self.layout.leaves if m.shape > 1)
        aligned = _power_of_two(reduce(gcd, steps, 8 * self.alignment))
        if self.swizzle.bits and aligned < self.swizzle.period:
            aligned = min(aligned, self.swizzle.atom)
        return aligned

    @property
    def contiguous(self) -> bool:
        """Whether the elements of each vector are neighbours in memory, also after the swizzle."""
        vector = self.element.coalesce()
        if vector.size == 1:
            return True
        width = vector.size * self.dtype.bits // 8
        whole = not self.swizzle.bits or (width <= self.swizzle.atom and self.access_alignment % width == 0)
        return vector == Layout(vector.size, 1) and whole

    @property
    def swizzled_layout(self) -> SwizzledLayout:
        """The function from coordinates to offsets in elements: `layout`, then `offset`, then the swizzle."""
        return SwizzledLayout(self.swizzle.for_elements(self.dtype.bits), self.layout, self.offset)

    def __str__(self) -> str:
        vector = f" x {self.element}" if self.element != _SCALAR else ""
        where = self.swizzled_layout if self.swizzle.bits or self.offset else self.layout
        return f"{self.space.value} {self.dtype.name}{vector} {where}"

    # Where things are

    @overload
    def __getitem__(self, coordinate: int | tuple[IntTuple, ...]) -> int: ...  # type: ignore[overload-overlap]
    @overload
    def __getitem__(self, coordinate: slice | tuple[object, ...]) -> "TileTensor": ...
    def __getitem__(self, coordinate: object) -> "int | TileTensor":
        """Return the offset of a coordinate, in elements from the base, or the part of the tile that ``:`` keeps.

        Raises
        ------
        CoordinateError
            If the coordinate has the wrong nesting or lies outside the shape.

        Examples
        --------
        >>> tile = TileTensor(Layout.row_major(8, 4), "f32", AddressSpace.REGISTER)
        >>> tile[2, 1], tile[:, 1][2]
        (9, 9)
        """
        if not _keeps(coordinate):
            return self.swizzled_layout(nested.normalised(coordinate, "coordinate", 0))
        entries = coordinate if isinstance(coordinate, tuple) else (coordinate,)
        kept, moved = self.layout.slice(*entries)
        return replace(self, layout=kept, offset=self.offset + moved)

    def byte_offset(self, *coordinate: IntTuple) -> int:
        """Return the offset of a coordinate in bytes from the base.

        Raises
        ------
        CoordinateError
            If the coordinate has the wrong nesting, lies outside the shape, or its element is narrower than a byte
            and does not start on one.
        """
        return self._in_bytes(self.swizzled_layout(*coordinate))

    def byte_offsets(self) -> Iterator[tuple[IntTuple, int]]:
        """Iterate over every coordinate, the leftmost mode fastest, and its offset in bytes from the base."""
        for index, offset in enumerate(self.swizzled_layout.offsets()):
            yield self.layout.coordinate(index), self._in_bytes(offset)

    def _in_bytes(self, offset: int) -> int:
        whole, bits = divmod(offset * self.dtype.bits, 8)
        if bits:
            raise CoordinateError(
                f"element {offset} of {self} starts at bit {bits} of byte {whole}; only whole bytes have an address: "
                f"vectorize the tile by {8 // self.dtype.bits}"
            )
        return whole

    # Parts of it

    def tile(self, shape: int | tuple[int, ...], coordinate: int | tuple[int, ...]) -> "TileTensor":
        """Return one of the equal tiles that this tensor divides into.

        Parameters
        ----------
        shape : int or tuple of int
            The extents of a tile, one for each mode; each divides its mode.
        coordinate : int or tuple of int
            Which tile, counted in tiles along each mode.

        Raises
        ------
        LayoutError
            If `shape` does not divide the tensor, or there is no such tile.

        Examples
        --------
        >>> c = TileTensor(Layout.row_major(128, 256), "f32", AddressSpace.GLOBAL)
        >>> tile = c.tile((64, 64), (1, 2))
        >>> tile.shape, tile[0, 0] == c[64, 128]
        ((64, 64), True)
        """
        tile, rest = self._divided("tile", shape if isinstance(shape, tuple) else (shape,))
        return replace(self, layout=tile, offset=self.offset + rest(coordinate))

    def vectorize(self, *shape: int) -> "TileTensor":
        """Return this tensor with every block of `shape` elements taken as one vector.

        Parameters
        ----------
        *shape : int
            The extents of a vector, one for each mode; each divides its mode.

        Returns
        -------
        TileTensor
            A tensor of vectors: a coordinate gives the offset of a vector's first element, and `element` the
            offsets of the others from there.

        Raises
        ------
        LayoutError
            If `shape` does not divide the tensor, or it is one of vectors already.
        """
        if self.element != _SCALAR:
            raise LayoutError(f"vectorize: the elements are vectors already, {self.element}; do it once, in one shape")
        vector, rest = self._divided("vectorize", shape)
        return replace(self, layout=rest, element=vector)

    def distribute(self, thread_layout: Layout, thread_id: int) -> "TileTensor":
        """Return the elements (or vectors) of one thread, dealt out round-robin along each mode.

        Parameters
        ----------
        thread_layout : Layout
            From a thread's coordinate to its number, one mode for each mode of the tensor; every number below its
            size belongs to one thread. Its extents divide those of the tensor.
        thread_id : int
            The thread.

        Raises
        ------
        LayoutError
            If the threads do not divide the tensor, are not numbered one by one, or there is no such thread.

        Examples
        --------
        Each of 32 lanes takes 2 x 8 of the 16 x 32 pairs in a tile:

        >>> tile = TileTensor(Layout.row_major(16, 64), "f32", AddressSpace.SHARED)
        >>> mine = tile.vectorize(1, 2).distribute(Layout.row_major(8, 4), 5)
        >>> mine.shape, mine[0, 0] == tile[1, 2], mine[1, 3] == tile[1 + 8, 2 + 3 * 8]
        ((2, 8), True, True)
        """
        offset_of_thread, part = self.distribution(thread_layout)
        return replace(part, offset=self.offset + offset_of_thread(thread_id))

    def distribution(self, thread_layout: Layout) -> tuple[Layout, "TileTensor"]:
        """Return `distribute` for all threads at once, for thread numbers known only when a kernel runs.

        Returns
        -------
        tuple of Layout and TileTensor
            From a thread's number to its offset in elements, to be added before the swizzle; and the part of thread 0.
        """
        inverse = thread_layout.right_inverse()
        if inverse.size != thread_layout.size or thread_layout.cosize != thread_layout.size:
            raise LayoutError(
                f"distribute: thread_layout {thread_layout} does not number its {thread_layout.size} threads "
                f"0 to {thread_layout.size - 1}, each once"
            )
        extents = tuple(mode.size for mode in thread_layout)
        threads, part = self._divided("distribute", extents)
        return threads.compose(inverse), replace(self, layout=part)

    def _divided(self, what: Literal["tile", "vectorize", "distribute"], shape: tuple[int, ...]) -> Layout:
        if len(shape) != self.rank:
            raise LayoutError(
                f"{what}: {nested.text(shape)} has {len(shape)} extents for the {self.rank} modes of shape "
                f"{nested.text(self.shape)}; give one for each (1 or the whole mode leaves it alone)"
            )
        try:
            return self.layout.zipped_divide(shape)
        except LayoutError as error:
            raise LayoutError(f"{what} by {nested.text(shape)}: {error}") from None

    # Pictures

    def picture(self, colour: Literal["offset", "bank"] = "offset") -> Picture:
        """Return a drawing of the element offsets, shaded in ascending order or coloured by shared-memory bank."""
        byte_offsets = [offset for _, offset in self.byte_offsets()] if colour == "bank" else None
        offsets = self.swizzled_layout.offsets()
        return picture_of_offsets(self.shape, offsets, title=str(self), byte_offsets=byte_offsets)

    def text(self) -> str:
        """Return the element offsets as a grid of text."""
        return self.picture().text()

    def svg(self, colour: Literal["offset", "bank"] = "offset") -> str:
        """Return the element offsets as an SVG document."""
        return self.picture(colour).svg()

    def _repr_html_(self) -> str:
        """The picture, for notebooks; the words alone where there are too many cells."""
        return in_notebook(str(self), self.size, self.picture)


def _power_of_two(bits: int) -> int:
    """Return, in bytes, the largest power of two that divides a number of bits; 1 if it is less than a byte."""
    return max(1, (bits & -bits) // 8)


def _keeps(coordinate: object) -> bool:
    """Return whether a coordinate leaves any mode open."""
    return any(map(_keeps, coordinate)) if isinstance(coordinate, tuple) else isinstance(coordinate, slice)
