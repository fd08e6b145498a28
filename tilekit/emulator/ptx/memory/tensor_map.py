"""Tensor maps: the description of a global tensor and of the box that one bulk tensor copy moves.

`TensorMap` holds what ``cuTensorMapEncodeTiled`` and ``cuTensorMapEncodeIm2col`` take, under the same rules, and is
independent of how the copy is then done: the CUDA runtime checks its arguments here before it calls the driver, and the
emulator copies by it. All dimensions are innermost first, as in the driver API.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Literal, TypeAlias

from tilekit.emulator.ptx.memory.swizzle import SPAN, Swizzle
from tilekit.emulator.ptx.memory.tensor_elements import ELEMENT_TYPES, ElementType
from tilekit.emulator.ptx.memory.tensor_map_encoding import open_encoding, seal_encoding

__all__ = [
    "CODES",
    "ELEMENT_TYPES",
    "INTERLEAVES",
    "OOB_FILLS",
    "SWIZZLES",
    "ElementType",
    "Interleave",
    "L2Promotion",
    "OobFill",
    "PixelBox",
    "TensorMap",
    "WideMode",
]

Interleave: TypeAlias = Literal["16B", "32B"]
WideMode: TypeAlias = Literal["W", "W128"]
OobFill: TypeAlias = Literal["nan"]
L2Promotion: TypeAlias = Literal["64B", "128B", "256B"]


_PADDED = ("16u4_align16B", "16u6_align16B")
_PADDED_SWIZZLES: tuple[Swizzle | None, ...] = (None, "128B", "128B_atom_32B", "128B_atom_64B")
_CORNER_RANGE = {3: (-32768, 32767), 4: (-128, 127), 5: (-16, 15)}
INTERLEAVES: tuple[Interleave | None, ...] = (None, "16B", "32B")
SWIZZLES: tuple[Swizzle | None, ...] = tuple(SPAN)
OOB_FILLS: tuple[OobFill | None, ...] = (None, "nan")
_WIDE_SWIZZLES: tuple[Swizzle, ...] = ("64B", "128B", "128B_atom_32B")
_KINDS: tuple[WideMode | Literal[""] | None, ...] = (None, "", "W", "W128")
"""How an encoded map is written: tiled, im2col, and the two wide modes."""
_L2_PROMOTIONS: tuple[L2Promotion | None, ...] = (None, "64B", "128B", "256B")
_NAMES = tuple(ELEMENT_TYPES)
CODES = {name: code for code, name in enumerate(_NAMES)}
"""How an encoded map writes each element type; the other modes are written as their places in the tuples above."""


@dataclass(frozen=True)
class PixelBox:
    """The im2col bounding box and the column of pixels that one copy takes from it.

    Attributes
    ----------
    lower, upper
        Corner offsets of the box, one a spatial dimension, in the order (W, H, D): a position w of the walk satisfies
        ``lower[0] <= w <= dims[1] - 1 + upper[0]``, and so on.
    channels_per_pixel
        Elements taken along the channel dimension, at most 256.
    pixels_per_column
        Pixels walked, at most 1024.
    wide
        ``"W"`` or ``"W128"`` for a map of `im2col_wide`, whose copies walk along W and N only; else empty.
    """

    lower: tuple[int, ...]
    upper: tuple[int, ...]
    channels_per_pixel: int
    pixels_per_column: int
    wide: WideMode | Literal[""] = ""


@dataclass(frozen=True)
class TensorMap:
    """Everything that ``cuTensorMapEncodeTiled`` or ``cuTensorMapEncodeIm2col`` takes.

    Build one with `tiled` or `im2col`, which check every rule; the plain constructor checks nothing, so that
    `problems` can be asked.

    Attributes
    ----------
    address
        Global address of element zero, in bytes.
    dtype
        A key of `ELEMENT_TYPES`.
    dims
        Extents in elements, innermost first. For im2col (C, W, [H, [D,]] N).
    strides
        Bytes from one element to the next along dimensions 1, 2, ...: one fewer than `dims`.
    box
        Box extents in elements; empty for im2col.
    pixels
        The im2col box, or None for a tiled map.
    element_strides
        Step along each dimension, 1 to 8. A tiled box moves ``ceil(box / element_stride)`` elements along a dimension.
        Dimension 0's is ignored without interleave.
    interleave
        None, or the slice size of an NC/8HWC8 (``"16B"``) or NC/16HWC16 (``"32B"``) layout. Dimension 0 then counts
        slices, whatever the element type.
    swizzle
        Shared-memory swizzle, or None.
    oob_fill
        None fills out-of-bounds elements with zeros, ``"nan"`` with a NaN.
    l2_promotion
        L2 fetch granularity; speed only.
    """

    address: int
    dtype: str
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    pixels: PixelBox | None
    element_strides: tuple[int, ...]
    interleave: Interleave | None = None
    swizzle: Swizzle | None = None
    oob_fill: OobFill | None = None
    l2_promotion: L2Promotion | None = None

    @classmethod
    def tiled(
        cls,
        address: int,
        dtype: str,
        dims: Sequence[int],
        strides: Sequence[int],
        box: Sequence[int],
        *,
        element_strides: Sequence[int] | None = None,
        interleave: Interleave | None = None,
        swizzle: Swizzle | None = None,
        oob_fill: OobFill | None = None,
        l2_promotion: L2Promotion | None = None,
    ) -> TensorMap:
        """Return a tiled map.

        Raises
        ------
        ValueError
            Naming every rule that the arguments break (CUDA driver API, ``cuTensorMapEncodeTiled``).
        """
        steps = (1,) * len(dims) if element_strides is None else _integers(element_strides)
        result = cls(
            int(address), dtype, _integers(dims), _integers(strides), _integers(box), None, steps,
            interleave, swizzle, oob_fill, l2_promotion,
        )  # fmt: skip
        result._check()
        return result

    @classmethod
    def im2col(
        cls,
        address: int,
        dtype: str,
        dims: Sequence[int],
        strides: Sequence[int],
        *,
        lower: Sequence[int],
        upper: Sequence[int],
        channels_per_pixel: int,
        pixels_per_column: int,
        element_strides: Sequence[int] | None = None,
        interleave: Interleave | None = None,
        swizzle: Swizzle | None = None,
        oob_fill: OobFill | None = None,
        l2_promotion: L2Promotion | None = None,
    ) -> TensorMap:
        """Return an im2col map; ``lower`` and ``upper`` are in the order (W, H, D).

        Raises
        ------
        ValueError
            Naming every rule that the arguments break (CUDA driver API, ``cuTensorMapEncodeIm2col``).
        """
        pixels = PixelBox(_integers(lower), _integers(upper), int(channels_per_pixel), int(pixels_per_column))
        steps = (1,) * len(dims) if element_strides is None else _integers(element_strides)
        result = cls(
            int(address), dtype, _integers(dims), _integers(strides), (), pixels, steps,
            interleave, swizzle, oob_fill, l2_promotion,
        )  # fmt: skip
        result._check()
        return result

    @classmethod
    def im2col_wide(
        cls,
        address: int,
        dtype: str,
        dims: Sequence[int],
        strides: Sequence[int],
        *,
        lower: int,
        upper: int,
        channels_per_pixel: int,
        pixels_per_column: int = 128,
        mode: WideMode,
        swizzle: Swizzle,
        element_strides: Sequence[int] | None = None,
        oob_fill: OobFill | None = None,
        l2_promotion: L2Promotion | None = None,
    ) -> TensorMap:
        """Return a map for ``.im2col::w`` or ``.im2col::w::128``; ``lower`` and ``upper`` are corners along W.

        Raises
        ------
        ValueError
            Naming every rule that the arguments break (CUDA driver API, ``cuTensorMapEncodeIm2colWide``).
        """
        rest = (0,) * (len(dims) - 3)
        pixels = PixelBox(
            (int(lower), *rest), (int(upper), *rest), int(channels_per_pixel), int(pixels_per_column), mode
        )
        steps = (1,) * len(dims) if element_strides is None else _integers(element_strides)
        result = cls(
            int(address), dtype, _integers(dims), _integers(strides), (), pixels, steps, None, swizzle, oob_fill,
            l2_promotion,
        )  # fmt: skip
        result._check()
        return result

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.dims)

    @cached_property
    def element(self) -> ElementType:
        """Layout of one element of the innermost dimension: with interleave, a slice of 16 or 32 bytes."""
        element = ELEMENT_TYPES[self.dtype]
        if self.interleave is None:
            return element
        size = 16 if self.interleave == "16B" else 32
        return replace(element, atom=1, global_bytes=size, shared_bytes=size)

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Elements that one copy moves along each box dimension; (channels, pixels) for im2col."""
        if self.pixels is not None:
            return (self.pixels.channels_per_pixel, self.pixels.pixels_per_column)
        steps = self.element_strides if self.interleave else (1, *self.element_strides[1:])
        return tuple(-(-extent // step) for extent, step in zip(self.box, steps, strict=True))

    @cached_property
    def row_bytes(self) -> int:
        """Bytes of one row of the box (dimension 0) in shared memory."""
        return self.counts[0] // self.element.atom * self.element.shared_bytes

    @cached_property
    def row_pitch(self) -> int:
        """Bytes from one row of the box to the next in shared memory: under a swizzle, rows start whole spans."""
        return self.row_bytes if self.swizzle is None or self.interleave else SPAN[self.swizzle]

    @cached_property
    def shared_bytes(self) -> int:
        """Bytes that the whole box occupies in shared memory, out-of-bounds elements and gaps included."""
        return prod(self.counts[1:]) * self.row_pitch

    @cached_property
    def transaction_bytes(self) -> int:
        """Bytes that a load adds to its mbarrier's transaction count: every element of the box, but no gaps."""
        return prod(self.counts) // self.element.atom * self.element.global_bytes

    @property
    def minimum_sm(self) -> int:
        """The lowest architecture whose copy engine knows this map's element type and swizzle: 90 or 100."""
        newer = ELEMENT_TYPES[self.dtype].atom > 1 or (self.swizzle is not None and "atom" in self.swizzle)
        return 100 if newer or (self.pixels is not None and self.pixels.wide) else 90

    def problems(self) -> list[str]:
        """Return every rule of the driver and the hardware that this map breaks, as one line each."""
        found = list(self._choice_problems())
        if not found:  # The rules below are stated in terms of legal choices.
            found = [*self._rank_problems()] or [*self._tensor_problems(), *self._box_problems()]
        return found

    def encode(self) -> bytes:
        """Return the map as 128 bytes: the emulator's own encoding, with a checksum, not the hardware's.

        Raises
        ------
        ValueError
            If the map is not legal.
        """
        self._check()
        pixels = self.pixels or PixelBox((), (), 0, 0)
        fields = [
            _KINDS.index(None if self.pixels is None else self.pixels.wide),
            CODES[self.dtype],
            self.rank,
            INTERLEAVES.index(self.interleave),
            SWIZZLES.index(self.swizzle),
            OOB_FILLS.index(self.oob_fill),
            _L2_PROMOTIONS.index(self.l2_promotion),
            self.address,
            *_padded(self.dims, 5),
            *_padded(self.strides, 4),
            *_padded(self.box, 5),
            *_padded(self.element_strides, 5),
            *_padded(pixels.lower, 3),
            *_padded(pixels.upper, 3),
            pixels.channels_per_pixel,
            pixels.pixels_per_column,
        ]
        return seal_encoding(fields)

    @classmethod
    def decode(cls, data: bytes) -> TensorMap:
        """Return the map that `encode` made these 128 bytes from.

        Raises
        ------
        ValueError
            If the bytes are no tensor map, were changed since, or describe no legal map.
        """
        kind, dtype, rank, interleave, swizzle, oob_fill, l2_promotion, address, *numbers = open_encoding(data)
        dims, strides, box, steps = numbers[:5], numbers[5:9], numbers[9:14], numbers[14:19]
        lower, upper, (channels, column) = numbers[19:22], numbers[22:25], numbers[25:27]
        spatial = rank - 2
        wide = _KINDS[kind]
        pixels = (
            None if wide is None else PixelBox(tuple(lower[:spatial]), tuple(upper[:spatial]), channels, column, wide)
        )
        result = cls(
            address=address,
            dtype=_NAMES[dtype],
            dims=tuple(dims[:rank]),
            strides=tuple(strides[: rank - 1]),
            box=() if pixels else tuple(box[:rank]),
            pixels=pixels,
            element_strides=tuple(steps[:rank]),
            interleave=INTERLEAVES[interleave],
            swizzle=SWIZZLES[swizzle],
            oob_fill=OOB_FILLS[oob_fill],
            l2_promotion=_L2_PROMOTIONS[l2_promotion],
        )
        result._check()
        return result

    def _check(self) -> None:
        found = self.problems()
        if found:
            kind = "im2col" if self.pixels else "tiled"
            raise ValueError(f"not a legal {kind} tensor map:\n  " + "\n  ".join(found))

    def _choice_problems(self) -> Iterator[str]:
        choices: tuple[tuple[str, object, Sequence[object]], ...] = (
            ("dtype", self.dtype, _NAMES),
            ("interleave", self.interleave, INTERLEAVES),
            ("swizzle", self.swizzle, SWIZZLES),
            ("oob_fill", self.oob_fill, OOB_FILLS),
            ("l2_promotion", self.l2_promotion, _L2_PROMOTIONS),
            ("mode", self.pixels.wide if self.pixels else None, _KINDS),
        )
        for name, given, legal in choices:
            if given not in legal:
                yield f"{name} = {given!r}: must be one of {', '.join(map(repr, legal))}"

    def _rank_problems(self) -> Iterator[str]:
        low = 3 if self.pixels or self.interleave else 1
        if not low <= self.rank <= 5:
            why = "an im2col map" if self.pixels else f"interleave {self.interleave}" if self.interleave else "a map"
            nearest = _clamp(self.rank, low, 5)
            yield f"dims has {self.rank} entries: {why} needs {low} to 5 dimensions; nearest legal {nearest}"
            return
        lengths: list[tuple[str, Sequence[int], int]] = [
            ("strides", self.strides, self.rank - 1),
            ("element_strides", self.element_strides, self.rank),
        ]
        if self.pixels:
            lengths += [("lower", self.pixels.lower, self.rank - 2), ("upper", self.pixels.upper, self.rank - 2)]
        else:
            lengths += [("box", self.box, self.rank)]
        for name, values, expected in lengths:
            if len(values) != expected:
                yield f"{name} has {len(values)} entries: rank {self.rank} needs {expected}"

    def _tensor_problems(self) -> Iterator[str]:
        padded = self.dtype in _PADDED
        align = 32 if padded or self.interleave == "32B" else 16
        why = f" ({self.dtype})" if padded else " (interleave 32B)" if align == 32 else ""
        yield from _multiple("address", self.address, align, f"bytes{why}", 0, 2**64 - align)
        for i, extent in enumerate(self.dims):
            yield from _range(f"dims[{i}]", extent, 1, 2**32)
        if padded:
            yield from _multiple("dims[0]", self.dims[0], 128, f"elements ({self.dtype})", 128, 2**32)
        elif ELEMENT_TYPES[self.dtype].atom == 2:
            yield from _multiple("dims[0]", self.dims[0], 2, f"elements ({self.dtype})", 2, 2**32)
        for i, stride in enumerate(self.strides):
            yield from _multiple(f"strides[{i}]", stride, align, f"bytes{why}", 0, 2**40 - align)
        for i, step in enumerate(self.element_strides):
            yield from _range(f"element_strides[{i}]", step, 1, 8)
        if self.interleave == "32B" and self.swizzle != "32B":
            yield f"swizzle = {self.swizzle!r}: interleave '32B' needs swizzle '32B'"
        if padded and self.interleave:
            yield f"interleave = {self.interleave!r}: {self.dtype} needs None"
        if padded and self.swizzle not in _PADDED_SWIZZLES:
            legal = ", ".join(map(repr, _PADDED_SWIZZLES))
            yield f"swizzle = {self.swizzle!r}: {self.dtype} needs one of {legal}; nearest legal '128B'"
        if self.oob_fill and not ELEMENT_TYPES[self.dtype].floating:
            yield f"oob_fill = {self.oob_fill!r}: only floating-point types can be filled, {self.dtype} needs None"

    def _box_problems(self) -> Iterator[str]:
        if self.pixels is None:
            inner_name, inner = "box[0]", self.box[0]
            for i, extent in enumerate(self.box):
                yield from _range(f"box[{i}]", extent, 1, 256)
        else:
            inner_name, inner = "channels_per_pixel", self.pixels.channels_per_pixel
            yield from _range("channels_per_pixel", inner, 1, 256)
            yield from _range("pixels_per_column", self.pixels.pixels_per_column, 1, 1024)
            yield from self._corner_problems(self.pixels)
        if self.dtype in _PADDED:
            if inner != 128:
                yield f"{inner_name} = {inner}: {self.dtype} needs 128"
            return
        if not 1 <= inner <= 256:
            return
        per_atom, size = ELEMENT_TYPES[self.dtype].atom, ELEMENT_TYPES[self.dtype].shared_bytes
        unit = 16 // size * per_atom
        spans = self.swizzle is not None and self.interleave is None
        widest = (SPAN[self.swizzle] // size if spans else 256 // unit * 16 // size) * per_atom
        given = f"{inner_name} = {inner}: {inner} {self.dtype} are {inner / per_atom * size:g} bytes"
        if inner % unit and not (self.pixels and self.interleave):
            nearest = _clamp(round(inner / unit) * unit, unit, widest)
            yield f"{given}, which must be a multiple of 16; nearest legal {nearest}"
        elif inner > widest:
            yield f"{given}, more than swizzle {self.swizzle} spans; nearest legal {widest}"

    def _corner_problems(self, pixels: PixelBox) -> Iterator[str]:
        low, high = _CORNER_RANGE[3 if pixels.wide else self.rank]
        if pixels.wide and self.swizzle not in _WIDE_SWIZZLES:
            yield f"swizzle = {self.swizzle!r}: a wide map needs one of {', '.join(map(repr, _WIDE_SWIZZLES))}"
        for name, corner in (("lower", pixels.lower), ("upper", pixels.upper)):
            for i, offset in enumerate(corner):
                yield from _range(f"{name}[{i}]", offset, low, high, f" at rank {self.rank}")
        for i, (first, last) in enumerate(zip(pixels.lower, pixels.upper, strict=True)):
            extent = self.dims[i + 1]
            if extent - 1 + last < first:
                yield (
                    f"upper[{i}] = {last}: the box along dimension {i + 1} runs from {first} to {extent - 1 + last} "
                    f"and is empty; nearest legal {first - extent + 1}"
                )


def _integers(values: Sequence[int]) -> tuple[int, ...]:
    return tuple(int(value) for value in values)


def _padded(values: Sequence[int], count: int) -> tuple[int, ...]:
    return (*values, *(0,) * (count - len(values)))


def _clamp(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)


def _range(name: str, given: int, low: int, high: int, where: str = "") -> Iterator[str]:
    if not low <= given <= high:
        yield f"{name} = {given}: must lie in {low} to {high}{where}; nearest legal {_clamp(given, low, high)}"


def _multiple(name: str, given: int, unit: int, what: str, low: int, high: int) -> Iterator[str]:
    if given % unit or not low <= given <= high:
        nearest = _clamp((given + unit // 2) // unit * unit, low, high)
        yield f"{name} = {given}: must be a multiple of {unit} {what} in {low} to {high}; nearest legal {nearest}"
