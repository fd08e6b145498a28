"""A payload of the caller's in the family's kernels: tiles beside A and B, what fills them, and what they scale."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from tilekit.annotations import call_checked, check_fields
from tilekit.arrays import ArrayView
from tilekit.assembly.fit import require_call, require_protocol
from tilekit.assembly.legal import illegal
from tilekit.assembly.shared import SharedArray
from tilekit.assembly.writer import Writer
from tilekit.errors import ArgumentError
from tilekit.kernels.launch_call import Addresses
from tilekit.kernels.operands import Input, matrices_of, read_inputs
from tilekit.tile_io.payload_loader import TileLoader
from tilekit.tile_io.staged_values import ValueTile
from tilekit.tile_op.accumulators import AccumulatorLayout
from tilekit.tile_op.scaled_accumulators import Factors
from tilekit.tile_pipeline.payload import StageTile
from tilekit.tiles.call import Matrix

LEADING = {"b": "batches", "g": "groups"}
"""Letters that a shape may begin with, and what they count: matrices of a batch, or groups of A's rows."""

TAKEN = ("c", "d", "k", "columns", "rows", *(one.name for one in fields(Addresses)))
"""Names of a product's own arrays and numbers."""


@call_checked
@dataclass(frozen=True)
class Blocks:
    """An extent that counts runs of elements of another, the last of which may be short.

    Attributes
    ----------
    letter
        Of the extent, in the shapes of inputs.
    of
        ``"m"``, ``"n"`` or ``"k"``: what the runs are of.
    size
        Elements of a run.
    """

    letter: str
    of: str
    size: int

    def __post_init__(self) -> None:
        check_fields(self)
        if len(self.letter) != 1 or not self.letter.isalpha() or self.letter in ("m", "n", "k", *LEADING):
            legal = "one letter other than m, n, k, b and g"
            raise ArgumentError.of("letter", self.letter, legal=legal, nearest="j", code="TK-COMP-001")
        if self.of not in tuple("mnk"):
            raise ArgumentError.of("of", self.of, legal="'m', 'n' or 'k'", nearest="k", code="TK-COMP-001")
        if self.size < 1:
            raise ArgumentError.of("size", self.size, legal="at least 1", nearest=1, code="TK-COMP-001")


@call_checked
@dataclass(frozen=True)
class OwnPayload:
    """What a kernel multiplies the sums of each k-block by, and how that reaches the threads that add them.

    A k-block is a stage, 128 bytes of K. Its sums begin anew; they are multiplied by factors, and added in f32.

    Attributes
    ----------
    inputs
        Arrays of a call, ``arrays={name: array}``; m, n and k are the product's extents. A shape may begin with b,
        where each matrix of a batch has values of its own, or with g, where each group of `tilekit.grouped_matmul`
        has; of groups m are the rows of all of them.
    factors
        ``(w, layout, staged)`` makes the `Factors` of a thread; `staged` says where a stage's tiles lie, by name.
    blocks
        What the other letters of inputs count.
    tiles
        ``(rows, columns)`` makes tiles of a stage beside A and B, for a CTA's tile of so many of M and N.
    loader
        ``(w, tile)`` makes the `TileLoader` of one of them, whose copies complete the stage by themselves.
    registers
        Of a thread, that factors keep, where that is more than a few; as of `Factors`.
    """

    inputs: Sequence[Input]
    factors: Callable[..., Any]
    blocks: Sequence[Blocks] = ()
    tiles: Callable[..., Any] | None = None
    loader: Callable[..., Any] | None = None
    registers: int = 0

    def __post_init__(self) -> None:
        check_fields(self)
        if self.registers < 0:
            raise ArgumentError.of("registers", self.registers, legal="0 or more", nearest=0, code="TK-COMP-001")
        if (self.tiles is None) != (self.loader is None):
            missing = "loader" if self.loader is None else "tiles"
            legal = "tiles and loader, which fills them, or neither"
            raise ArgumentError.of(missing, None, legal=legal, code="TK-COMP-001")
        known, names = {"m", "n", "k", *(runs.letter for runs in self.blocks)}, [one.name for one in self.inputs]
        for index, one in enumerate(self.inputs):
            if one.name in TAKEN or one.name in names[:index]:
                legal = f"names that are not taken: {', '.join((*TAKEN, *names[:index]))} are"
                raise ArgumentError.of("inputs", one.name, legal=legal, nearest=f"own_{one.name}", code="TK-COMP-001")
            self._check_shape(one, known)

    def _check_shape(self, one: Input, known: set[str]) -> None:
        """Check the letters of an input, of which those of the product and of blocks are `known`."""
        shape, letters = f"{one.name}'s shape", one.shape.removeprefix(leading_letter(one))
        for letter in letters:
            if letter in LEADING:
                legal = f"{letter}, which counts {LEADING[letter]}, first, and alone"
                nearest = letter + "".join(other for other in one.shape if other not in LEADING)
                raise ArgumentError.of(shape, one.shape, legal=legal, nearest=nearest, code="TK-COMP-001")
            if letter not in known:
                legal = f"letters m, n and k, or of blocks: Blocks({letter!r}, 'k', 64)"
                raise ArgumentError.of(shape, one.shape, legal=legal, code="TK-COMP-001")
        if len(letters) > 2:
            legal = "a letter or two, and before them b of batches, or g of groups"
            raise ArgumentError.of(shape, one.shape, legal=legal, code="TK-COMP-001")
        of_rows = {"m", *(runs.letter for runs in self.blocks if runs.of == "m")}
        if leading_letter(one) == "g" and of_rows & set(letters):
            legal = "no g beside rows, which are those of all groups"
            raise ArgumentError.of(shape, one.shape, legal=legal, nearest=letters, code="TK-COMP-001")

    def stage_tiles(self, rows: int, columns: int) -> tuple[StageTile, ...]:
        """Tiles of a stage beside A and B, for a CTA's tile of so many rows and columns."""
        if self.tiles is None:
            return ()
        make = self.tiles
        require_call("OwnPayload", "tiles", make, "rows", "columns")
        made = make(rows, columns)
        if not isinstance(made, Sequence):
            raise illegal("OwnPayload", "tiles", made, "a function that makes a list of tiles")
        for tile in made:
            require_protocol("OwnPayload", "tiles", tile, StageTile, verb="makes")
            if tile.name in ("a", "b"):
                raise illegal(
                    "OwnPayload", "tiles", tile.name, "tiles of other names than 'a' and 'b'", "own_" + tile.name
                )
            if isinstance(tile, ValueTile):
                self._require_order(tile)
        return tuple(made)

    def _require_order(self, tile: ValueTile) -> None:
        """Check that values of a tile lie behind each other as those of its array do."""
        for one in self.inputs:
            along = [letter in self._along_k for letter in one.shape.removeprefix(leading_letter(one))]
            if one.name == tile.name and sorted(along) == [False, True]:
                along_k = along[-1]
                if tile.along_k != along_k:
                    legal = f"{along_k}, since {one.name!r} is declared as {one.shape!r}: {one.shape[-1]} is contiguous"
                    raise illegal(f"ValueTile {tile.name!r}", "along_k", tile.along_k, legal, along_k)

    @property
    def _along_k(self) -> dict[str, int]:
        """Letters of extents along K, with how many elements of K each counts in one."""
        return {"k": 1, **{runs.letter: runs.size for runs in self.blocks if runs.of == "k"}}

    def loaders(self, w: Writer, tiles: Sequence[StageTile]) -> tuple[TileLoader, ...]:
        """A loader of each of them."""
        made = []
        for tile in tiles:
            assert self.loader is not None, "tiles come with a loader"
            require_call("OwnPayload", "loader", self.loader, "w", "tile")
            loader = self.loader(w, tile)
            require_protocol("OwnPayload", "loader", loader, TileLoader, verb="makes")
            if loader.name != tile.name:
                raise illegal("OwnPayload", "loader", f"a loader of {loader.name!r}", f"one of tile {tile.name!r}")
            made.append(loader)
        return tuple(made)

    def made(self, w: Writer, layout: AccumulatorLayout, staged: Mapping[str, SharedArray], k_block: int) -> Factors:
        """The factors, for stages of `k_block` elements of K."""
        require_call("OwnPayload", "factors", self.factors, "w", "layout", "staged")
        factors: Factors = self.factors(w, layout, staged)
        require_protocol("OwnPayload", "factors", factors, Factors, verb="makes")
        kind = type(factors).__name__
        if factors.k_block != k_block:
            raise illegal(kind, "k_block", factors.k_block, f"{k_block}, the elements of K of a stage", k_block)
        if factors.registers != self.registers:
            legal = f"{self.registers}, as the OwnPayload says, by which tiles are chosen"
            raise illegal(kind, "registers", factors.registers, legal, self.registers)
        return factors

    def require_leading(self, *, batched: bool, grouped: bool) -> None:
        """Raise `ArgumentError` (``TK-MM-028``) for inputs of batches or groups beside a product without any."""
        there = {"b": batched, "g": grouped}
        for one in self.inputs:
            letter = leading_letter(one)
            if letter and not there[letter]:
                rest = one.shape.removeprefix(letter)
                raise ArgumentError(
                    f"components has a payload whose {one.name}, {one.shape!r}, has values for {LEADING[letter]}, and "
                    f"this product has no {LEADING[letter]}; nearest: "
                    + (f"a payload whose {one.name} is {rest!r}" if rest else "a payload without it"),
                    code="TK-MM-028",
                )

    def read(self, arrays: Mapping[str, Any], **extents: int) -> dict[str, ArrayView]:
        """Check a call's arrays against their declarations and the product's extents, and each other.

        `extents` are m, n and k, of batches b, and of groups g.
        """
        self.require_leading(batched="b" in extents, grouped="g" in extents)
        known = {letter: (extent, "the product") for letter, extent in extents.items()}
        for runs in self.blocks:
            known[runs.letter] = -(-extents[runs.of] // runs.size), f"runs of {runs.size} of {runs.of}"
        views = read_inputs("a payload of yours", self.inputs, arrays, known)
        for one in self.inputs:
            letter, view = leading_letter(one), views[one.name]
            if letter and view.shape[0] > 1 and not view.strides[0]:
                raise ArgumentError(
                    f"{one.name} is declared as {one.shape!r}, and its {LEADING[letter]} share one place (stride 0); "
                    f"nearest: {one.shape.removeprefix(letter)!r}, which all {LEADING[letter]} share, or a copy",
                    code="TK-COMP-003",
                )
        return views

    def matrices(self, views: Mapping[str, ArrayView]) -> dict[str, Matrix]:
        """The inputs that the copy engine can load: with two letters, batches and groups aside."""
        plain = {one.name for one in self.inputs if len(one.shape.removeprefix(leading_letter(one))) == 2}
        return matrices_of({name: view for name, view in views.items() if name in plain})

    def numbers(self, views: Mapping[str, ArrayView]) -> dict[str, float]:
        """What `Ahead` asks for: elements from k-block to k-block, from row to row or column to column, how many.

        Also elements from batch to batch or group to group, whether there are any, and how many elements of K have a
        value in common.
        """
        along_k = self._along_k
        found: dict[str, float] = {}
        for one in self.inputs:
            view, leading = views[one.name], leading_letter(one)
            apart = view.strides[0] if leading and view.shape[0] > 1 else 0
            found |= {f"{one.name}_group": apart, f"{one.name}_batched": bool(leading)}
            every = zip(one.shape, view.strides, view.shape, strict=True)
            axes = [(letter in along_k, *of) for letter, *of in every if letter != leading]
            steps = [step for along, step, _ in axes if along]
            pitch, extent = next(((step, extent) for along, step, extent in axes if not along), (0, 1))
            step = steps[0] if steps else 0
            found |= {f"{one.name}_step": step, f"{one.name}_pitch": pitch, f"{one.name}_extent": extent}
            found |= {f"{one.name}_block": along_k[letter] for letter in one.shape if letter in along_k}
        return found


def leading_letter(one: Input) -> str:
    """The letter of an input that counts batches or groups; none where all of them share its values."""
    return one.shape[0] if one.shape[0] in LEADING else ""
