"""What an epilogue does with elements on their way: the protocol, and functions written in Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, cast

from tilekit.assembly.errors import TraceError
from tilekit.assembly.fit import component, require_call, require_protocol
from tilekit.assembly.types import F32
from tilekit.assembly.values import Operand, Value
from tilekit.assembly.writer import Writer
from tilekit.dtypes import DType
from tilekit.emulator.core.errors import shown
from tilekit.epilogue.row_sums import RowSums, RowTotals, SummedColumn
from tilekit.epilogue.totals import Uncounted
from tilekit.tiles.tile import Tile


class Fusion(Protocol):
    """The functions of an epilogue.

    A thread holds pairs of rows by pairs of columns. It asks for what a pair needs (`rows`, `columns`), passes that to
    `apply` with each element, and says when the tile has no more columns (`finish_rows`).
    """

    @property
    def source(self) -> DType | None:
        """Element type of the matrix that elements are combined with, if there is one."""

    @property
    def uses_rows(self) -> bool:
        """Whether rows need anything; else `rows` need not be asked, and `apply` gets None."""

    @property
    def reduces_rows(self) -> bool:
        """Whether the elements of a row are combined: an epilogue must then visit all of a pair's columns in turn."""

    def bind(self, w: Writer) -> None:
        """Fetch what all elements share; once a role, after the kernels before this one are complete."""

    def rows(self, w: Writer, row: Value, *, apart: int, batch: Operand = 0) -> Any:
        """Prepare rows `row` and ``row + apart`` of the output (they may lie beyond M)."""

    def columns(self, w: Writer, column: Value, *, apart: int = 1, batch: Operand = 0) -> Any:
        """Prepare columns `column` and ``column + apart`` (they may lie beyond N)."""

    def apply(
        self, w: Writer, value: Value, columns: Any, column: int, rows: Any, row: int, source: Value | None = None
    ) -> Value:
        """Return the output value, f32, of an accumulator in `column` and `row`, each 0 or 1 of the pair."""

    def finish_rows(self, w: Writer, rows: Any, tile: Tile) -> None:
        """All elements of `rows` in `tile` have been applied; by all lanes of the warp."""


class Reducing(Fusion, Protocol):
    """A fusion that combines elements of a row (`reduces_rows`), within a tile and over tiles.

    What is left of a tile may be finished when the next one is stored, so that nothing has to be waited for.
    """

    def begin_tile(self, w: Writer) -> None:
        """A tile's elements come; by all lanes of the warp."""

    def finish_tile(self, w: Writer, rows: Any, tile: Tile) -> None:
        """All elements of `tile` have been applied, of whose pairs of rows the first is `rows`; by all lanes."""

    def finish(self, w: Writer) -> None:
        """The role has no more tiles; by all lanes of the warp, once a role."""


class Entering(Fusion, Protocol):
    """A fusion that is told of each tile before its rows and columns are asked for: optional.

    It has to be where rows of groups end within a tile (`Tile.row_end`), and it stores what is theirs by itself.
    """

    def enter(self, w: Writer, tile: Tile) -> None:
        """What is asked for from now on is of `tile`."""


class Spreading(Fusion, Protocol):
    """A fusion whose columns a warp's lanes may fetch together, two each of `SPREAD`: optional.

    An epilogue in which four lanes have a row asks for it, where N is even and so are its columns.
    """

    @property
    def spreads(self) -> bool:
        """Whether columns have anything of their own."""

    def spread(self, w: Writer, column: Value, *, batch: Operand = 0) -> Any:
        """Fetch what columns `column` and on need, two a lane (they may lie beyond N); by all lanes of the warp."""

    def spread_pair(self, w: Writer, spread: Any, at: int, column: Value) -> Any:
        """Return what `columns` returns, of `column` and the one after it; by all lanes of the warp.

        They are ``at + 2 (lane % 4)`` and on of those that `spread` fetched.
        """


def enter(w: Writer, functions: Fusion, tile: Tile) -> None:
    """Tell functions of a tile, where they ask."""
    told = getattr(functions, "enter", None)
    if told is not None:
        told(w, tile)


def spreading(functions: Fusion) -> Spreading | None:
    """What may fetch columns for a warp: the functions, where they can, and no subclass has other columns."""
    owners = [next((at for at, one in enumerate(type(functions).__mro__) if name in vars(one)), None) for name in _BOTH]
    if owners[0] is None or owners[1] is None or owners[0] > owners[1]:
        return None
    return cast(Spreading, functions) if cast(Spreading, functions).spreads else None


_BOTH = ("spread", "columns")


def reducing(functions: Fusion) -> Reducing | None:
    """What must be told of tiles: the functions, where they combine elements of a row."""
    return cast(Reducing, functions) if functions.reduces_rows else None


def require_fusion(functions: object, where: str, *, transposed: bool, source: DType | None) -> None:
    """Check that an epilogue can run `functions`.

    Parameters
    ----------
    functions
        What was given.
    where
        The epilogue, for the message.
    transposed
        Whether its accumulators hold the transpose of the output.
    source
        Element type of the matrix that it can read beside the accumulators, if any.

    Raises
    ------
    TraceError
        ``TK-EPI-001`` naming both sides.
    """
    if isinstance(functions, type):
        name = functions.__name__
        raise TraceError(
            f"{where} was given the class {name} as its functions; nearest: one made of it, {name}(w, ...)",
            code="TK-EPI-001",
        )
    wanted = [*vars(Fusion), *(vars(Reducing) if getattr(functions, "reduces_rows", False) else ())]
    missing = [name for name in wanted if not name.startswith("_") and not hasattr(functions, name)]
    kind = type(functions).__name__
    if missing:
        raise TraceError(
            f"{where} was given a {kind} as its functions, which lacks {', '.join(missing)}; pass Elementwise, Fused "
            "or another Fusion",
            code="TK-EPI-001",
        )
    for name in ("uses_rows", "reduces_rows"):
        if not isinstance(getattr(functions, name), bool):
            given = getattr(functions, name)
            raise TraceError(
                f"{where}: {kind}.{name} is {shown(given)}; legal: True or False, an attribute or a property",
                code="TK-EPI-001",
            )
    require_protocol(where, "functions", functions, Reducing if functions.reduces_rows else Fusion)  # type: ignore[attr-defined]
    if functions.reduces_rows and transposed:  # type: ignore[attr-defined]
        raise TraceError(
            f"{kind} combines the elements of a row, but {where} holds the transpose of the output, in which a row is "
            "spread over the warp; compute the output upright",
            code="TK-EPI-001",
        )
    if functions.source != source:  # type: ignore[attr-defined]
        raise TraceError(
            f"{kind} combines elements with {_matrix(functions.source)}, but {where} reads "  # type: ignore[attr-defined]
            f"{_matrix(source)}; give both the same type",
            code="TK-EPI-001",
        )


def require_element(name: str, made: object) -> None:
    """Check what a function made of an element (``TK-EPI-002``)."""
    if not isinstance(made, Value) or made.type is not F32:
        said = f"{name} returned {made!r} for an element of the output; it must return an f32 value"
        raise TraceError(said, code="TK-EPI-002")


def _matrix(source: DType | None) -> str:
    return "no second matrix" if source is None else f"a second matrix of {source}"


@component
class Fused:
    """A function of yours: ``function(w, x)``, or ``function(w, x, source)`` with the element of a second matrix there.

    It gets f32 values and returns one, in the writer's arithmetic and fragments (``w.isa.elementwise``).

    Parameters
    ----------
    function
        The function.
    source
        Element type of the second matrix, where there is one.
    row_sums
        Sums of what the function returns, for each row.

    Raises
    ------
    TraceError
        ``TK-EPI-002``, as the kernel is traced, where `function` returns no f32 value.
    """

    def __init__(
        self, function: Callable[..., Value], *, source: DType | None = None, row_sums: RowSums | None = None
    ) -> None:
        require_call("Fused", "function", function, "w", "x", *(() if source is None else ("source",)))
        self._function = function
        self._source = source
        self._sums = row_sums

    @property
    def source(self) -> DType | None:
        """Element type of the second matrix."""
        return self._source

    @property
    def uses_rows(self) -> bool:
        """Rows have sums, or nothing."""
        return self._sums is not None

    @property
    def reduces_rows(self) -> bool:
        """Whether rows have sums."""
        return self._sums is not None

    def bind(self, w: Writer) -> None:
        """Nothing is shared by all elements; sums go on from tile to tile."""
        if self._sums is not None:
            self._uncounted = Uncounted(w, [self._sums])

    def rows(self, w: Writer, row: Value, *, apart: int, batch: Operand = 0) -> RowTotals | None:
        """Begin the sums of two rows."""
        return None if self._sums is None else self._sums.begin(w, row, apart=apart, batch=batch)

    def columns(
        self, w: Writer, column: Value, *, apart: int = 1, batch: Operand = 0
    ) -> tuple[SummedColumn, SummedColumn] | None:
        """Say which of two columns count in sums: those that the output has."""
        return None if self._sums is None else self._sums.columns(column, apart=apart)

    def apply(
        self,
        w: Writer,
        value: Value,
        columns: tuple[SummedColumn, SummedColumn] | None,
        column: int,
        rows: RowTotals | None,
        row: int,
        source: Value | None = None,
    ) -> Value:
        """Return what the function makes of an element."""
        result = self._function(w, value) if source is None else self._function(w, value, source)
        require_element(getattr(self._function, "__qualname__", repr(self._function)), result)
        if rows is not None and columns is not None:
            rows.add(w, row, result, columns[column].index, columns[column].inside)
        return result

    def finish_rows(self, w: Writer, rows: RowTotals | None, tile: Tile) -> None:
        """Leave the rows' sums in this tile behind."""
        if self._sums is not None and rows is not None:
            self._sums.finish_rows(w, rows, tile)

    def begin_tile(self, w: Writer) -> None:
        """Count what sums left of the tile before."""
        self._uncounted.begin_tile(w)

    def finish_tile(self, w: Writer, rows: RowTotals, tile: Tile) -> None:
        """Go on to the tile after this one."""
        self._uncounted.finish_tile(w, rows.row, tile)

    def finish(self, w: Writer) -> None:
        """Count what sums left of the last tile."""
        self._uncounted.finish(w)
