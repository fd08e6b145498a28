"""Bulk copies and tensor copies (PTX ISA 9.7.9.25 to 9.7.9.27)."""

from __future__ import annotations

from typing import cast

import numpy as np

from tilekit.emulator.core.arithmetic.lanes import Array
from tilekit.emulator.ptx.arithmetic.reductions import ReduceOp, reduction
from tilekit.emulator.ptx.compiler.block_compiler import BlockCompiler
from tilekit.emulator.ptx.copies import bulk, bulk_linear, bulk_tensor
from tilekit.emulator.ptx.copies.gather import gather_load, scatter_store
from tilekit.emulator.ptx.copies.im2col_wide import wide_load
from tilekit.emulator.ptx.language.forms import Decoded, form
from tilekit.emulator.ptx.language.syntax import AddressOperand, Immediate, Operand, RegisterOperand, VectorOperand
from tilekit.emulator.ptx.ops.barrier import where_is

_DIM = "dim=1d|2d|3d|4d|5d"
_HINT = "hint=L2::cache_hint?"
_LOAD = f"{_DIM} dst=shared::cluster|shared::cta src=global"
_STORE = f"{_DIM} dst=global src=shared::cta mode=tile|im2col_no_offs? complete=bulk_group"
_COMPLETE = "complete=mbarrier::complete_tx::bytes multicast=multicast::cluster?"
_WIDE = "im2col::w|im2col::w::128"
_GROUP = "group=cta_group::1|cta_group::2?"


def value(g: BlockCompiler, operand: Operand, kind: str) -> str:
    """An operand as a Python int when uniform, else as an array; registers of any width."""
    if isinstance(operand, RegisterOperand):
        bits = operand.register.bits
        kind = f"{kind[0]}{bits}" if bits != int(kind[1:]) else kind
    return g.scalar(operand, kind) if g.is_uniform(operand) else g.array(operand, kind)


def _tensor(g: BlockCompiler, operand: Operand) -> tuple[str, str]:
    """Expressions of a tensor map's address and of the tuple of coordinates."""
    assert isinstance(operand, AddressOperand)
    coordinates = "".join(value(g, c, "s32") + ", " for c in operand.coordinates or ())
    return where_is(g, AddressOperand(operand.base, operand.addend)), f"({coordinates})"


def group_of(g: BlockCompiler, i: Decoded) -> int:
    """CTAs whose mbarriers a load may signal: 1, or 2 with ``.cta_group::2``."""
    return int(i.get("group", "cta_group::1")[-1])


def _check_dimensions(g: BlockCompiler, i: Decoded, operand: Operand) -> None:
    assert isinstance(operand, AddressOperand)
    rows_alone = i.get("mode") in ("tile::gather4", "tile::scatter4")
    given, wanted = len(operand.coordinates or ()), 5 if rows_alone else int(i["dim"][0])
    if given != wanted:
        raise g.fail(f"{given} coordinates, where .{i['dim']}{'.' + i['mode'] if i.has('mode') else ''} has {wanted}")


def _extras(i: Decoded, start: int) -> list[Operand | None]:
    """The optional operands: CTA mask (with .multicast), cache policy (with .L2::cache_hint)."""
    rest = list(i.operands[start:])
    mask = rest.pop(0) if i.has("multicast") and rest else None
    return [mask]


def _check_count(g: BlockCompiler, i: Decoded, start: int) -> None:
    wanted = start + i.has("multicast") + i.has("hint")
    if len(i.operands) != wanted:
        raise g.fail(f"{len(i.operands)} operands where these modifiers need {wanted}")


@form("cp", f"async bulk tensor {_LOAD} mode=tile? {_COMPLETE} {_GROUP} {_HINT}", "[a] [t] [a] a? a?")
@form("cp", f"async bulk tensor {_LOAD} mode=im2col {_COMPLETE} {_GROUP} {_HINT}", "[a] [t] [a] {a} a? a?")
def tensor_load(g: BlockCompiler, i: Decoded) -> None:
    """``cp.async.bulk.tensor`` to shared memory."""
    destination, tensor, barrier = i.operands[:3]
    offsets: tuple[Operand, ...] = ()
    start = 3
    if i.get("mode") == "im2col":
        vector = i.operands[3]
        assert isinstance(vector, VectorOperand)
        offsets, start = vector.items, 4
        if len(offsets) != int(i["dim"][0]) - 2:
            raise g.fail(f"{len(offsets)} im2col offsets for a .{i['dim']} copy, which takes {int(i['dim'][0]) - 2}")
    _check_count(g, i, start)
    _check_dimensions(g, i, tensor)
    map_address, coordinates = _tensor(g, tensor)
    (mask,) = _extras(i, start)
    ctas = "None" if mask is None else value(g, mask, "u16")
    shifts = "".join(value(g, o, "u16") + ", " for o in offsets)
    g.place()
    g.effect(
        f"{g.helper(bulk_tensor.tensor_load)}(w, 'shared', {where_is(g, destination)}, {map_address}, {coordinates}, "
        f"{where_is(g, barrier)}, ({shifts}), {ctas}, {group_of(g, i)}, {g.mask()})"
    )


@form("cp", f"async bulk tensor dim=2d dst=shared::cluster|shared::cta src=global mode=tile::gather4 {_COMPLETE} "
      f"{_GROUP} {_HINT}", "[a] [t] [a] a? a?")  # fmt: skip
def gather(g: BlockCompiler, i: Decoded) -> None:
    """``cp.async.bulk.tensor`` with ``.tile::gather4``."""
    destination, tensor, barrier = i.operands[:3]
    _check_count(g, i, 3)
    _check_dimensions(g, i, tensor)
    map_address, coordinates = _tensor(g, tensor)
    (mask,) = _extras(i, 3)
    ctas = "None" if mask is None else value(g, mask, "u16")
    g.place()
    g.effect(
        f"{g.helper(gather_load)}(w, {where_is(g, destination)}, {map_address}, {coordinates}, {where_is(g, barrier)}, "
        f"{ctas}, {group_of(g, i)}, {g.mask()})"
    )


@form("cp", f"async bulk tensor dim=2d dst=global src=shared::cta mode=tile::scatter4 complete=bulk_group {_HINT}",
      "[t] [a] a?")  # fmt: skip
def scatter(g: BlockCompiler, i: Decoded) -> None:
    """``cp.async.bulk.tensor`` with ``.tile::scatter4``."""
    tensor, source = i.operands[:2]
    _check_count(g, i, 2)
    _check_dimensions(g, i, tensor)
    map_address, coordinates = _tensor(g, tensor)
    g.place()
    g.effect(f"{g.helper(scatter_store)}(w, {map_address}, {coordinates}, {where_is(g, source)}, {g.mask()})")


@form("cp", f"async bulk tensor {_STORE} {_HINT}", "[t] [a] a?")
@form("cp", f"reduce async bulk tensor {_STORE} op=add|min|max|inc|dec|and|or|xor {_HINT}", "[t] [a] a?")
def tensor_store(g: BlockCompiler, i: Decoded) -> None:
    """``cp.async.bulk.tensor`` and ``cp.reduce.async.bulk.tensor`` to global memory."""
    tensor, source = i.operands[:2]
    _check_count(g, i, 2)
    _check_dimensions(g, i, tensor)
    map_address, coordinates = _tensor(g, tensor)
    reduction = repr(i["op"]) if i.has("op") else "None"
    g.place()
    g.effect(
        f"{g.helper(bulk_tensor.tensor_store)}(w, 'shared', {map_address}, {coordinates}, {where_is(g, source)}, "
        f"{reduction}, {g.mask()})"
    )


@form("cp", f"async bulk prefetch tensor {_DIM} level=L2 src=global mode=tile? {_HINT}", "[t] a?")
@form("cp", f"async bulk prefetch tensor {_DIM} level=L2 src=global mode=im2col {_HINT}", "[t] {a} a?")
@form("cp", f"async bulk prefetch tensor dim=2d level=L2 src=global mode=tile::gather4 {_HINT}", "[t] a?")
@form("cp", f"async bulk prefetch tensor {_DIM} level=L2 src=global mode={_WIDE} {_HINT}", "[t] {a} a?")
def tensor_prefetch(g: BlockCompiler, i: Decoded) -> None:
    """Prefetches to L2 change no result."""


@form("cp", f"async bulk prefetch level=L2 src=global {_HINT}", "[a] a a?")
def prefetch(g: BlockCompiler, i: Decoded) -> None:
    """``cp.async.bulk.prefetch.L2``: it changes no result, but has the rules of bulk copies."""
    source, size = i.operands[:2]
    g.place()
    g.effect(f"{g.helper(bulk_linear.bulk_prefetch)}(w, {where_is(g, source)}, {value(g, size, 'u32')}, {g.mask()})")


@form("cp", f"async bulk tensor {_LOAD} mode={_WIDE} {_COMPLETE} {_GROUP} {_HINT}", "[a] [t] [a] {a} a? a?")
def tensor_load_wide(g: BlockCompiler, i: Decoded) -> None:
    """``cp.async.bulk.tensor`` with ``.im2col::w`` and ``.im2col::w::128``."""
    destination, tensor, barrier, vector = i.operands[:4]
    assert isinstance(vector, VectorOperand)
    if len(vector.items) != 2:
        raise g.fail(f"{len(vector.items)} numbers, where a wide im2col copy takes two: wHalo and wOffset")
    _check_count(g, i, 4)
    _check_dimensions(g, i, tensor)
    map_address, coordinates = _tensor(g, tensor)
    (mask,) = _extras(i, 4)
    ctas = "None" if mask is None else value(g, mask, "u16")
    halo, shift = (value(g, item, "u16") for item in vector.items)
    mode = "W128" if i["mode"] == "im2col::w::128" else "W"
    g.place()
    g.effect(
        f"{g.helper(wide_load)}(w, {mode!r}, {where_is(g, destination)}, {map_address}, {coordinates}, "
        f"{where_is(g, barrier)}, {halo}, {shift}, {ctas}, {group_of(g, i)}, {g.mask()})"
    )


@form("cp", f"async bulk dst=shared::cluster|shared::cta src=global {_COMPLETE} {_HINT}", "[a] [a] a [a] a? a?")
@form("cp", f"async bulk dst=shared::cta src=global complete=mbarrier::complete_tx::bytes {_HINT} ignore_oob",
      "[a] [a] a a a [a] a?")  # fmt: skip
@form("cp", "async bulk dst=shared::cluster src=shared::cta complete=mbarrier::complete_tx::bytes", "[a] [a] a [a]")
@form(
    "cp",
    "reduce async bulk dst=shared::cluster src=shared::cta complete=mbarrier::complete_tx::bytes "
    "op=add|min|max|inc|dec|and|or|xor type=u32|s32|u64|b32|b64",
    "[a] [a] a [a]",
)
def bulk_load(g: BlockCompiler, i: Decoded) -> None:
    """``cp.async.bulk`` and ``cp.reduce.async.bulk`` to shared memory."""
    destination, source, size = i.operands[:3]
    ignored = i.operands[3:5] if i.has("ignore_oob") else ()
    count = 4 + len(ignored)
    barrier = i.operands[count - 1]
    _check_count(g, i, count)
    (mask,) = _extras(i, count)
    ctas = "None" if mask is None else value(g, mask, "u16")
    space = "global" if i["src"] == "global" else "shared"
    unread = "".join(value(g, operand, "u32") + ", " for operand in ignored)
    g.place()
    g.effect(
        f"{g.helper(bulk_linear.bulk_load)}(w, 'shared', {where_is(g, destination)}, {space!r}, {where_is(g, source)}, "
        f"{value(g, size, 'u32')}, {where_is(g, barrier)}, {ctas}, {g.mask()}, {combination(g, i)}, "
        f"({unread}))"
    )


@form("cp", f"async bulk dst=global src=shared::cta complete=bulk_group {_HINT}", "[a] [a] a a?")
@form("cp", f"async bulk dst=global src=shared::cta complete=bulk_group {_HINT} cp_mask", "[a] [a] a a a?")
@form(
    "cp",
    f"reduce async bulk dst=global src=shared::cta complete=bulk_group {_HINT} op=add|min|max|inc|dec|and|or|xor "
    "noftz? type=f16|bf16|f32|f64|b32|u32|s32|b64|u64|s64",
    "[a] [a] a a?",
)
def bulk_store(g: BlockCompiler, i: Decoded) -> None:
    """``cp.async.bulk`` and ``cp.reduce.async.bulk`` to global memory."""
    destination, source, size = i.operands[:3]
    masked = i.has("cp_mask")
    _check_count(g, i, 3 + masked)
    kept = value(g, i.operands[-1], "u16") if masked else "None"
    g.place()
    g.effect(
        f"{g.helper(bulk_linear.bulk_store)}(w, 'shared', {where_is(g, destination)}, {where_is(g, source)}, "
        f"{value(g, size, 'u32')}, {combination(g, i)}, {kept}, {g.mask()})"
    )


def combination(g: BlockCompiler, i: Decoded) -> str:
    """Name of what combines memory with what arrives; ``None`` for a copy."""
    if not i.has("op"):
        return "None"
    try:
        return g.constant(Reduction(cast(ReduceOp, i["op"]), i["type"]))
    except ValueError as error:
        raise g.fail(str(error)) from None


class Reduction:
    """Element-wise combination of memory with what a bulk reduction brings."""

    def __init__(self, operation: ReduceOp, kind: str) -> None:
        self.storage, self.combine = reduction({"b32": "u32", "b64": "u64"}.get(kind, kind), operation)

    def __call__(self, region: Array, image: Array) -> Array:
        """Return the new bytes of the region."""
        held, added = (np.ascontiguousarray(part).view(self.storage) for part in (region, image))
        result: Array = self.combine(held, added).view(np.uint8)
        return result


@form("cp", "async bulk commit_group", "")
def commit(g: BlockCompiler, i: Decoded) -> None:
    """``cp.async.bulk.commit_group``."""
    g.effect(f"{g.helper(bulk.bulk_commit)}(w)")


@form("cp", "async bulk wait_group read?", "#")
def wait(g: BlockCompiler, i: Decoded) -> None:
    """``cp.async.bulk.wait_group``: what it waits for is done now, if it has not landed by itself."""
    count = i.operands[0]
    assert isinstance(count, Immediate)
    g.place()
    g.effect(f"{g.helper(bulk.bulk_wait)}(w, {count.value}, {i.has('read')})")
