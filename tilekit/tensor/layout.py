"""`Layout`: a function from coordinates to offsets, given by a nested shape and a stride of the same nesting.

Coordinates are colexicographic, as in CuTe: the leftmost mode varies fastest, so ``layout(i)`` for an integer ``i``
walks the first mode first, whatever the strides. Shapes are positive, strides are zero (broadcast) or positive.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias, Union

from tilekit.tensor import modes as flat_modes
from tilekit.tensor import nested
from tilekit.tensor.draw import Picture, in_notebook, picture_of_offsets
from tilekit.tensor.modes import Mode
from tilekit.tensor.nested import CoordinateError, IntTuple, LayoutError

Tiler: TypeAlias = Union["Layout", int, "tuple[Tiler, ...]"]
"""What divides, multiplies or selects from a layout: a layout on its 1-D index (an integer ``n`` means ``n:1``),
or a tuple that applies one tiler to each of the leading modes."""


@dataclass(frozen=True, slots=True, init=False)
class Layout:
    """A function from coordinates in `shape` to offsets, linear in each leaf of `shape`.

    Parameters
    ----------
    shape : int or nested tuple of int
        The extent of every mode; at least 1.
    stride : int or nested tuple of int, optional
        The step of every mode, nested like `shape`; at least 0. Column-major and without gaps if left out.

    Raises
    ------
    LayoutError
        If an extent or stride is out of range, or the two are not nested alike.

    Examples
    --------
    >>> a = Layout((4, (2, 2)), (2, (1, 8)))
    >>> print(a)
    (4,(2,2)):(2,(1,8))
    >>> a(1, 3), a(1, (1, 1)), a(13)
    (11, 11, 11)
    """

    shape: IntTuple
    stride: IntTuple

    def __init__(self, shape: IntTuple, stride: IntTuple | None = None) -> None:
        shape = nested.normalised(shape, "shape", 1)
        if stride is None:
            stride = nested.compact_strides(shape, leftmost_fastest=True)
        else:
            stride = nested.normalised(stride, "stride", 0)
            if not nested.congruent(shape, stride):
                raise LayoutError(f"stride {nested.text(stride)} is not nested like shape {nested.text(shape)}")
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "stride", stride)

    @classmethod
    def row_major(cls, *shape: IntTuple) -> "Layout":
        """Return the layout without gaps whose rightmost mode varies fastest.

        >>> print(Layout.row_major(8, 4))
        (8,4):(4,1)
        """
        extents = nested.normalised(_one_or_tuple(shape, "shape"), "shape", 1)
        return cls(extents, nested.compact_strides(extents, leftmost_fastest=False))

    @classmethod
    def col_major(cls, *shape: IntTuple) -> "Layout":
        """Return the layout without gaps whose leftmost mode varies fastest: the identity on 1-D indices."""
        return cls(_one_or_tuple(shape, "shape"))

    @classmethod
    def from_modes(cls, *modes: "Layout") -> "Layout":
        """Return the layout whose top-level modes are `modes`; its offset is the sum of theirs."""
        if not modes:
            raise LayoutError("from_modes() was given no mode; a layout needs at least one")
        return cls(tuple(m.shape for m in modes), tuple(m.stride for m in modes))

    @classmethod
    def _from_flat(cls, modes: list[Mode]) -> "Layout":
        if len(modes) == 1:
            return cls(*modes[0])
        return cls(tuple(m.shape for m in modes), tuple(m.stride for m in modes))

    # What it is

    @property
    def size(self) -> int:
        """The number of coordinates."""
        return nested.size(self.shape)

    @property
    def cosize(self) -> int:
        """One past the largest offset."""
        return 1 + sum((m.shape - 1) * m.stride for m in self.leaves)

    @property
    def rank(self) -> int:
        """The number of top-level modes."""
        return len(self.shape) if isinstance(self.shape, tuple) else 1

    @property
    def depth(self) -> int:
        """How deeply the modes nest: 0 for a plain ``shape:stride``."""
        return nested.depth(self.shape)

    @property
    def leaves(self) -> tuple[Mode, ...]:
        """The innermost modes, left to right, as pairs of integers."""
        return tuple(map(Mode, nested.flat(self.shape), nested.flat(self.stride)))

    def __str__(self) -> str:
        return f"{nested.text(self.shape)}:{nested.text(self.stride)}"

    def __repr__(self) -> str:
        return f"Layout({self.shape}, {self.stride})"

    def __getitem__(self, mode: int | slice | tuple[int, ...]) -> "Layout":
        """Return one mode, a run of modes (for a slice), or a mode of a mode (for a tuple of indices).

        >>> print(Layout((4, (2, 3)), (2, (1, 8)))[1, 1])
        3:8
        """
        if isinstance(mode, tuple):
            layout = self
            for index in mode:
                layout = layout[index]
            return layout
        modes = tuple(self)
        if isinstance(mode, slice):
            return Layout.from_modes(*modes[mode])
        if not -self.rank <= mode < self.rank:
            raise CoordinateError(f"mode {mode} of {self} does not exist; it has modes 0 to {self.rank - 1}")
        return modes[mode]

    def __iter__(self) -> Iterator["Layout"]:
        """Iterate over the top-level modes; a plain ``shape:stride`` is its own only mode."""
        if isinstance(self.shape, tuple) and isinstance(self.stride, tuple):
            return map(Layout, self.shape, self.stride)
        return iter((self,))

    # The function

    def __call__(self, *coordinate: IntTuple) -> int:
        """Return the offset of a coordinate.

        Parameters
        ----------
        *coordinate : int or nested tuple of int
            One entry for each mode, or a single integer: the colexicographic index. An integer may stand for any
            nested part of the coordinate.

        Raises
        ------
        CoordinateError
            If the coordinate has the wrong nesting or lies outside the shape.
        """
        where = nested.normalised(_one_or_tuple(coordinate, "coordinate"), "coordinate", 0)
        return nested.offset_of(where, self.shape, self.stride)

    def coordinate(self, index: int) -> IntTuple:
        """Return the natural coordinate, nested like the shape, of the colexicographic `index`."""
        if not 0 <= index < self.size:
            raise CoordinateError(f"index {index} lies outside {self}, which has indices 0 to {self.size - 1}")
        return nested.coordinate_of(index, self.shape)

    def offsets(self) -> tuple[int, ...]:
        """Return the offset of every index, in order."""
        result: tuple[int, ...] = (0,)
        for shape, stride in self.leaves:
            result = tuple(base + i * stride for i in range(shape) for base in result)
        return result

    def slice(self, *coordinate: object) -> tuple["Layout", int]:
        """Fix some modes and keep the others.

        Parameters
        ----------
        *coordinate : int, nested tuple, or ``slice(None)``
            One entry for each mode; ``slice(None)`` (``:``) keeps a mode.

        Returns
        -------
        tuple of Layout and int
            The modes that are kept, and the offset of the fixed ones.

        Examples
        --------
        >>> Layout.row_major(8, 4).slice(3, slice(None))
        (Layout((4,), (1,)), 12)
        """
        if len(coordinate) != self.rank:
            raise CoordinateError(
                f"slice of {self}: {len(coordinate)} entries for {self.rank} modes; give one for each"
            )
        kept: list[Layout] = []
        offset = sum(_fix(part, mode, kept) for part, mode in zip(coordinate, self, strict=True))
        if not kept:
            raise CoordinateError(f"slice of {self}: at least one mode must be kept with ':'; call it for an offset")
        return Layout.from_modes(*kept), offset

    # Simpler forms

    def flatten(self) -> "Layout":
        """Return the same function on a shape that nests at most once."""
        return self._from_flat(list(self.leaves))

    def coalesce(self) -> "Layout":
        """Return the same function of the 1-D index with the fewest modes.

        >>> print(Layout((2, (1, 6)), (1, (6, 2))).coalesce())
        12:1
        """
        return self._from_flat(flat_modes.coalesced(self.leaves))

    def filter(self) -> "Layout":
        """Return the layout without broadcast modes (stride 0) and modes of extent 1: the offsets are the same set."""
        return self._from_flat(flat_modes.coalesced([m for m in self.leaves if m.stride > 0]))

    # Algebra

    def compose(self, tiler: Tiler) -> "Layout":
        """Return the layout ``i -> self(tiler(i))``, nested like `tiler`; also ``self @ tiler``.

        Two ways of being wrong without notice, which CuTe leaves to the caller, are errors here. A `tiler` that
        leaves the domain of ``self`` is refused (CuTe runs on along the last mode). Modes of `tiler` that fit one
        by one but whose sum carries between modes of ``self`` are refused. In return, a stride that divides nothing
        is accepted where the indices never leave a mode, so that its divisibility does not matter.

        Parameters
        ----------
        tiler : Layout, int or tuple
            A layout on the 1-D index of ``self``, or a tuple with one tiler for each of the leading modes (the
            other modes stay as they are).

        Raises
        ------
        LayoutError
            If no layout nested like `tiler` equals the pointwise composition, with the mode and the divisibility
            that is violated.

        Examples
        --------
        >>> print(Layout((6, 2), (8, 2)) @ Layout((4, 3), (3, 1)))
        ((2,2),3):((24,2),8)
        """
        if isinstance(tiler, tuple):
            return self._by_mode("compose", tiler, lambda mode, part: mode.compose(part))
        inner = _as_layout(tiler)
        if inner.cosize > self.size:
            raise LayoutError(
                f"compose: {inner} reaches index {inner.cosize - 1} of {self}, whose last index is {self.size - 1}"
            )
        replaced = [self._from_flat(part) for part in flat_modes.composed(self.leaves, inner.leaves)]
        shape = nested.refilled(inner.shape, [part.shape for part in replaced])
        stride = nested.refilled(inner.shape, [part.stride for part in replaced])
        return Layout(shape, stride)

    def __matmul__(self, tiler: Tiler) -> "Layout":
        return self.compose(tiler)

    def complement(self, codomain: int | None = None) -> "Layout":
        """Return the layout, ascending, of the places that copies of this one would start at to fill `codomain`.

        Together, ``Layout.from_modes(self.filter(), self.complement(n))`` reaches every offset from 0 up exactly
        once. As in CuTe, `codomain` is rounded up to a whole number of periods (the extent of the largest stride).

        Parameters
        ----------
        codomain : int, optional
            How many offsets are to be filled; the layout's own `cosize` if left out.

        Raises
        ------
        LayoutError
            If the gaps are not themselves modes: some stride is not a multiple of what smaller strides cover.

        Examples
        --------
        >>> print(Layout((2, 2), (1, 6)).complement(24))
        (3,2):(2,12)
        """
        if codomain is not None and codomain < 1:
            raise LayoutError(f"codomain is {codomain}; the smallest legal value is 1")
        return self._from_flat(flat_modes.complemented(self.leaves, self.cosize if codomain is None else codomain))

    def logical_divide(self, tiler: Tiler) -> "Layout":
        """Return the layout split into (what `tiler` selects, how often): mode 0 is a tile, mode 1 the tiles.

        For a tuple, each mode becomes such a pair. The tiler has to divide the layout (CuTe rounds up and leaves
        the overhang to the caller).

        Raises
        ------
        LayoutError
            If `tiler` does not divide the layout.

        Examples
        --------
        >>> print(Layout((8, 32), (32, 1)).logical_divide((4, 8)))
        ((4,2),(8,4)):((32,128),(1,8))
        """
        if isinstance(tiler, tuple):
            return self._by_mode("logical_divide", tiler, lambda mode, part: mode.logical_divide(part))
        inner = _as_layout(tiler)
        rest = inner.complement(self.size)
        covered = inner.filter().size * rest.size
        if covered != self.size:
            hint = (
                f"(nearest tile sizes that do: {nested.nearest_divisors(self.size, tiler)})"
                if isinstance(tiler, int)
                else f"(its size must be a multiple of {flat_modes.period(inner.leaves)}, the tiler's period)"
            )
            raise LayoutError(f"divide: {inner} does not divide {self}, of size {self.size} {hint}")
        return self.compose(Layout.from_modes(inner, rest))

    def zipped_divide(self, tiler: Tiler) -> "Layout":
        """Return `logical_divide` with all tile modes gathered in mode 0 and all others in mode 1.

        >>> print(Layout((8, 32), (32, 1)).zipped_divide((4, 8)))
        ((4,8),(2,4)):((32,1),(128,8))
        """
        if not isinstance(tiler, tuple):
            return self.logical_divide(tiler)
        divided = self._by_mode("zipped_divide", tiler, lambda mode, part: mode.zipped_divide(part))
        pairs, rest = tuple(divided)[: len(tiler)], tuple(divided)[len(tiler) :]
        return Layout.from_modes(
            Layout.from_modes(*(pair[0] for pair in pairs)),
            Layout.from_modes(*(pair[1] for pair in pairs), *rest),
        )

    def tiled_divide(self, tiler: Tiler) -> "Layout":
        """Return `zipped_divide` with the modes that count tiles side by side: ``(tile, rest, rest, ...)``."""
        tile, rest = self.zipped_divide(tiler)
        return Layout.from_modes(tile, *rest)

    def logical_product(self, tiler: Tiler) -> "Layout":
        """Return (this layout, its copies): mode 1 places a copy wherever `tiler` says, in units of free places.

        For a tuple, each mode becomes such a pair.

        Examples
        --------
        >>> print(Layout((2, 2), (4, 1)).logical_product(6))
        ((2,2),(2,3)):((4,1),(2,8))
        """
        if isinstance(tiler, tuple):
            return self._by_mode("logical_product", tiler, lambda mode, part: mode.logical_product(part))
        copies = _as_layout(tiler)
        return Layout.from_modes(self, self.complement(self.size * copies.cosize).compose(copies))

    def blocked_product(self, grid: "Layout") -> "Layout":
        """Return this block repeated over `grid`, mode by mode, each block in one piece: ``((block, grid), ...)``.

        The pairs are kept apart, so that block and grid stay addressable; `coalesce` a mode to forget them.

        >>> print(Layout((2, 5), (5, 1)).blocked_product(Layout((3, 4), (1, 3))))
        ((2,3),(5,4)):((5,10),(1,30))
        """
        return self._zipped_product(grid, block_first=True)

    def raked_product(self, grid: "Layout") -> "Layout":
        """Return this block repeated over `grid`, mode by mode, the blocks interleaved: ``((grid, block), ...)``.

        >>> print(Layout((2, 5), (5, 1)).raked_product(Layout((3, 4), (1, 3))))
        ((3,2),(4,5)):((10,5),(30,1))
        """
        return self._zipped_product(grid, block_first=False)

    def _zipped_product(self, grid: "Layout", *, block_first: bool) -> "Layout":
        rank = max(self.rank, grid.rank)
        block, copies = self._padded(rank).logical_product(grid._padded(rank))
        pairs = zip(block, copies, strict=True) if block_first else zip(copies, block, strict=True)
        return Layout.from_modes(*(Layout.from_modes(*pair) for pair in pairs))

    def _padded(self, rank: int) -> "Layout":
        return Layout.from_modes(*self, *(Layout(1, 0) for _ in range(rank - self.rank)))

    def right_inverse(self) -> "Layout":
        """Return the longest layout R, from offset 0 up, with ``self(R(i)) == i``.

        >>> print(Layout.row_major(8, 4).right_inverse())
        (4,8):(8,1)
        """
        return self._from_flat(flat_modes.inverted(self.leaves))

    def left_inverse(self) -> "Layout":
        """Return a layout L with ``L(self(i)) == i``: from an offset back to the 1-D index.

        Raises
        ------
        LayoutError
            If two indices share an offset, or the gaps between offsets are not modes (see `complement`).

        Examples
        --------
        >>> layout = Layout((4, 3), (1, 8))
        >>> layout.left_inverse()(layout(2, 1)) == 2 + 4 * 1
        True
        """
        shared = next((m for m in self.leaves if m.shape > 1 and m.stride == 0), None)
        if shared:
            raise LayoutError(f"left_inverse of {self}: mode {shared} gives {shared.shape} indices the same offset")
        return Layout.from_modes(self, self.complement()).right_inverse()

    def _by_mode(self, what: str, tilers: tuple[Tiler, ...], apply: "_ModeOperation") -> "Layout":
        modes = tuple(self)
        if len(tilers) > self.rank:
            raise LayoutError(f"{what}: {len(tilers)} tilers were given for the {self.rank} modes of {self}")
        done = []
        for k, (mode, tiler) in enumerate(zip(modes, tilers, strict=False)):
            try:
                done.append(apply(mode, tiler))
            except LayoutError as error:
                raise LayoutError(f"mode {k} of {self}: {error}") from None
        return Layout.from_modes(*done, *modes[len(tilers) :])

    # Pictures

    def picture(self) -> Picture:
        """Return a drawing of the offsets, shaded in ascending order: mode 0 down, the other modes across."""
        return picture_of_offsets(self.shape, self.offsets(), title=str(self))

    def text(self) -> str:
        """Return the offsets as a grid of text."""
        return self.picture().text()

    def svg(self) -> str:
        """Return the offsets as an SVG document."""
        return self.picture().svg()

    def _repr_html_(self) -> str:
        """The picture, for notebooks; the words alone where there are too many cells."""
        return in_notebook(str(self), self.size, self.picture)


_ModeOperation: TypeAlias = Callable[[Layout, Tiler], Layout]


def _one_or_tuple(entries: tuple[IntTuple, ...], name: str) -> IntTuple:
    """Return the entries of a variadic call: a single one stands for itself."""
    if not entries:
        raise LayoutError(f"{name} is missing: give one entry for each mode")
    return entries[0] if len(entries) == 1 else entries


def _as_layout(tiler: Layout | int) -> Layout:
    if isinstance(tiler, Layout):
        return tiler
    return Layout(nested.normalised(tiler, "tiler", 1))


def _fix(coordinate: object, layout: Layout, kept: list[Layout]) -> int:
    """Return the offset of the fixed part of `coordinate`, appending to `kept` the modes that it leaves open."""
    if isinstance(coordinate, slice):
        if coordinate != slice(None):
            raise CoordinateError(f"slice {coordinate} of mode {layout}: only ':' is legal; select a part with tile()")
        kept.append(layout)
        return 0
    if isinstance(coordinate, tuple):
        if layout.depth == 0 or len(coordinate) != layout.rank:
            raise CoordinateError(f"coordinate {coordinate} does not fit shape {nested.text(layout.shape)}")
        return sum(_fix(part, mode, kept) for part, mode in zip(coordinate, layout, strict=True))
    return layout(nested.normalised(coordinate, "coordinate", 0))
