"""Swizzles: permutations of offsets by exclusive-or, which spread a tile's rows over the banks of shared memory."""

from dataclasses import dataclass

from tilekit.tensor.draw import Picture, in_notebook, picture_of_offsets
from tilekit.tensor.layout import Layout
from tilekit.tensor.nested import IntTuple, LayoutError

_TMA_BITS = {None: 0, 32: 1, 64: 2, 128: 3}


@dataclass(frozen=True, slots=True)
class Swizzle:
    """The permutation that flips bits ``[base, base + bits)`` of an offset with the `bits` bits `shift` above them.

    Parameters
    ----------
    bits : int
        How many bits are flipped; 0 makes the identity.
    base : int
        The lowest bit that is flipped: ``2**base`` consecutive offsets stay together.
    shift : int
        The distance to the bits that decide; at least `bits`, so that the two do not overlap.

    Raises
    ------
    LayoutError
        If a parameter is negative, or `shift` is less than `bits`.

    Examples
    --------
    >>> swizzle = Swizzle.tma(128)
    >>> swizzle
    Swizzle(bits=3, base=4, shift=3)
    >>> swizzle(5 * 128 + 0), 5 * 128 + (0 ^ 5) * 16
    (720, 720)
    """

    bits: int
    base: int
    shift: int

    def __post_init__(self) -> None:
        for name in ("bits", "base", "shift"):
            if getattr(self, name) < 0:
                raise LayoutError(f"{name} is {getattr(self, name)}; the smallest legal value is 0")
        if self.shift < self.bits:
            raise LayoutError(
                f"shift is {self.shift}, less than bits ({self.bits}): the bits that decide would themselves be "
                f"flipped; the smallest legal shift is {self.bits}"
            )

    @classmethod
    def identity(cls) -> "Swizzle":
        """Return the swizzle that changes nothing."""
        return cls(0, 0, 0)

    @classmethod
    def tma(cls, span: int | None) -> "Swizzle":
        """Return the swizzle, on byte offsets, of the hardware's 32, 64 or 128-byte mode.

        TMA writes and wgmma reads shared memory through it (PTX ISA, "Swizzling Modes"): within every `span` bytes
        of a row, 16-byte chunks trade places. Offsets count from an address that is a multiple of `period`.

        Parameters
        ----------
        span : int or None
            32, 64 or 128 bytes; None for no swizzle.

        Raises
        ------
        LayoutError
            If there is no such mode.
        """
        if span not in _TMA_BITS:
            raise LayoutError(f"span is {span!r}; the swizzle modes are 32, 64 and 128 bytes, and None for no swizzle")
        bits = _TMA_BITS[span]
        return cls(bits, 4, 3) if bits else cls.identity()

    @property
    def period(self) -> int:
        """The pattern repeats after so many offsets, so a swizzled tile must start on a multiple of it."""
        return 1 << (self.base + self.shift + self.bits) if self.bits else 1

    @property
    def span(self) -> int:
        """Offsets trade places within blocks of this size: the row of the pattern."""
        return 1 << (self.base + self.bits) if self.bits else 1

    @property
    def atom(self) -> int:
        """So many consecutive offsets, from a multiple of it, stay together."""
        return 1 << self.base

    def __call__(self, offset: int) -> int:
        """Return where `offset` goes."""
        mask = (1 << self.bits) - 1
        return offset ^ ((offset >> (self.base + self.shift)) & mask) << self.base

    def inverse(self) -> "Swizzle":
        """Return the swizzle itself: the bits that decide are never flipped, so applying it twice changes nothing."""
        return self

    def for_elements(self, width: int) -> "Swizzle":
        """Return this swizzle of byte offsets as one of element offsets.

        Parameters
        ----------
        width : int
            The width of an element in bits, a power of two.

        Raises
        ------
        LayoutError
            If an element is wider than what the swizzle keeps together.

        Examples
        --------
        >>> Swizzle.tma(128).for_elements(16)
        Swizzle(bits=3, base=3, shift=3)
        """
        if self.bits == 0:
            return self
        if width < 1 or width & (width - 1):
            raise LayoutError(f"width is {width} bits; it must be a power of two")
        base = self.base + 3 - (width.bit_length() - 1)
        if base < 0:
            raise LayoutError(f"width is {width} bits, but {self} keeps no more than {8 * self.atom} bits together")
        return Swizzle(self.bits, base, self.shift)

    def __matmul__(self, layout: Layout) -> "SwizzledLayout":
        """Return the composition ``coordinate -> self(layout(coordinate))``, in the same units."""
        return SwizzledLayout(self, layout)


@dataclass(frozen=True, slots=True)
class SwizzledLayout:
    """A layout whose offsets go through a swizzle: ``coordinate -> swizzle(offset + layout(coordinate))``.

    The offset lies inside, so a tile cut out of a swizzled tensor still swizzles by its place in the whole.

    Examples
    --------
    >>> rows = Swizzle(1, 0, 2) @ Layout.row_major(4, 4)
    >>> rows(0, 0), rows(1, 0), rows(1, 1)
    (0, 5, 4)
    """

    swizzle: Swizzle
    layout: Layout
    offset: int = 0

    @property
    def shape(self) -> IntTuple:
        """The shape of the layout."""
        return self.layout.shape

    @property
    def size(self) -> int:
        """The number of coordinates."""
        return self.layout.size

    def __call__(self, *coordinate: IntTuple) -> int:
        """Return the offset of a coordinate (see `Layout.__call__`)."""
        return self.swizzle(self.offset + self.layout(*coordinate))

    def offsets(self) -> tuple[int, ...]:
        """Return the offset of every index, in order."""
        return tuple(self.swizzle(self.offset + offset) for offset in self.layout.offsets())

    def __str__(self) -> str:
        swizzle = f"S({self.swizzle.bits},{self.swizzle.base},{self.swizzle.shift})"
        return f"{swizzle} o {self.offset} o {self.layout}" if self.offset else f"{swizzle} o {self.layout}"

    def picture(self) -> Picture:
        """Return a drawing of the offsets (see `Layout.picture`)."""
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
