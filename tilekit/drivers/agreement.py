"""Whether a driver's components speak of the same tiles: sides of the output, k-blocks, extents.

What a component does not say, as one of the caller's need not, is not compared.
"""

from __future__ import annotations

from tilekit.assembly.fit import said
from tilekit.assembly.legal import illegal
from tilekit.tile_io.payload_loader import PayloadLoader
from tilekit.tile_pipeline.payload import Payload
from tilekit.tiles.operand import OperandTile


def check_agreement(
    driver: str, *, loader: object, op: object, payload: Payload, scheduler: object, epilogue: object
) -> None:
    """Compare what components of a driver say.

    Parameters
    ----------
    driver
        Its name.
    loader, op, payload, scheduler, epilogue
        The components.

    Raises
    ------
    TraceError
        ``TK-PART-001`` for an op whose operand has another k-block than a stage, or is loaded along the other side of
        the output than the epilogue stores, and for a scheduler whose tiles are of other extents than the op's.
    """
    wanted = said(op, "tile_shape", "bind")
    if wanted is None:
        return
    name = type(op).__name__
    operands = {one: tile for one in "ab" if isinstance(tile := getattr(op, one, None), OperandTile)}
    for operand, tile in operands.items():
        if tile.k != payload.k:
            legal = f"a tile with the k-block of a stage, {payload.k} elements; {tile.name!r} has {tile.k}"
            raise illegal(f"{driver}'s {name}", operand, tile.name, legal)
    if said(epilogue, "side", "bind") != "rows":
        return
    loaded = loader.sides if isinstance(loader, PayloadLoader) else {}
    for operand, side in (("a", "rows"), ("b", "columns")):
        along = loaded.get(operands[operand].name, side) if operand in operands else side
        if along != side:
            fitting = [tile.name for tile in operands.values() if loaded.get(tile.name) == side]
            legal = f"the tile that is loaded along {side} of the output; {operands[operand].name!r} is along {along}"
            raise illegal(f"{driver}'s {name}", operand, operands[operand].name, legal, next(iter(fitting), None))
    given = said(scheduler, "tile_shape", "tiles")
    if given is None:
        return
    for argument, its, ours, side in zip(("tile_m", "tile_n"), given, wanted, ("rows", "columns"), strict=True):
        if its != ours:
            raise illegal(f"{driver}'s raster", argument, its, f"{ours}, the {side} of a tile that {name} makes", ours)


def check_bytes(loader: object, sync: object) -> None:
    """Compare the bytes that a ring's barriers expect of a stage with those that a loader brings.

    Raises
    ------
    TraceError
        ``TK-PART-001`` where they differ.
    """
    brought, expected = getattr(loader, "brings", None), getattr(sync, "stage_bytes", None)
    if None not in (brought, expected) and brought != expected:
        legal = f"{brought}, what {type(loader).__name__}'s copies bring to a stage"
        raise illegal(type(sync).__name__, "stage_bytes", expected, legal, brought)
