"""``tcgen05``: the fifth-generation tensor core and its memory (PTX ISA 9.7.16)."""

from __future__ import annotations

from tilekit.emulator.ptx.compiler.block_compiler import BlockCompiler
from tilekit.emulator.ptx.language.forms import Decoded, form, never
from tilekit.emulator.ptx.language.syntax import AddressOperand, Immediate, Operand, SymbolOperand, VectorOperand
from tilekit.emulator.ptx.matrix import tensor_mma, tensor_order, tensor_pipe, tensor_warp
from tilekit.emulator.ptx.matrix.tcgen05_descriptors import MmaForm
from tilekit.emulator.ptx.matrix.tensor_pipe import CopyForm
from tilekit.emulator.ptx.matrix.tmem import RegisterShape
from tilekit.emulator.ptx.ops.barrier import same_in_warp, where_is
from tilekit.emulator.ptx.ops.bulk import value
from tilekit.emulator.ptx.ops.memory import scalar_address
from tilekit.emulator.ptx.ops.wgmma import tile_rows_of

_GROUP = "group=cta_group::1|cta_group::2"


def _group(i: Decoded) -> int:
    return int(i["group"][-1])


def _one_value(g: BlockCompiler, operand: Operand, kind: str = "b32") -> str:
    """A register that must be the same for the warp."""
    if g.is_uniform(operand):
        return g.scalar(operand, kind)
    return f"{g.helper(same_in_warp)}(w, {g.array(operand, kind)})"


def _address(g: BlockCompiler, operand: Operand) -> str:
    """A tensor-memory address that must be the same for the warp."""
    assert isinstance(operand, AddressOperand)
    _check_address(g, operand)
    text = _one_value(g, operand.base)
    return f"({text} + {operand.addend})" if operand.addend else text


def _check_address(g: BlockCompiler, operand: AddressOperand) -> None:
    if isinstance(operand.base, Immediate | SymbolOperand):
        raise g.fail("a tensor-memory address is a register, or a register plus a constant")


# -- allocation ------------------------------------------------------------------------------------------------------


@form("tcgen05", f"op=alloc {_GROUP} sync aligned space=shared|shared::cta? type=b32", "[a] a", flow="wait")
def alloc(g: BlockCompiler, i: Decoded) -> None:
    """``tcgen05.alloc``."""
    destination, count = i.operands
    if isinstance(count, Immediate) and count.value not in (32, 64, 128, 256, 512):
        raise g.fail(f"{count.value} columns; legal: 32, 64, 128, 256 or 512")
    g.place()
    space = "shared" if i.has("space") else "generic"
    address = (
        scalar_address(g, destination)
        if g.is_uniform(destination)
        else f"{g.helper(same_in_warp)}(w, {where_is(g, destination)})"
    )
    call = g.helper(tensor_warp.allocate)
    g.emit(f"if not {call}(w, {_group(i)}, {space!r}, {address}, {_one_value(g, count)}): return WAIT")


@form("tcgen05", f"op=dealloc {_GROUP} sync aligned type=b32", "a a")
def dealloc(g: BlockCompiler, i: Decoded) -> None:
    """``tcgen05.dealloc``."""
    address, count = i.operands
    g.place()
    g.effect(f"{g.helper(tensor_warp.deallocate)}(w, {_group(i)}, {_one_value(g, address)}, {_one_value(g, count)})")


@form("tcgen05", f"op=relinquish_alloc_permit {_GROUP} sync aligned", "")
def relinquish(g: BlockCompiler, i: Decoded) -> None:
    """``tcgen05.relinquish_alloc_permit``."""
    g.place()
    g.effect(f"{g.helper(tensor_warp.relinquish)}(w, {_group(i)})")


# -- mma -------------------------------------------------------------------------------------------------------------

_COLLECT_A = "collector=" + "|".join(f"collector::a::{use}" for use in ("fill", "use", "lastuse", "discard"))
_COLLECT_B = "collector=" + "|".join(
    f"collector::b{n}::{use}" for n in range(4) for use in ("fill", "use", "lastuse", "discard")
)
_DENSE = "kind=kind::f16|kind::tf32|kind::f8f6f4|kind::i8"
_SCALED = "kind=kind::mxf8f6f4|kind::mxf4|kind::mxf4nvf4"
_VECTOR = "vector=scale_vec::1X|scale_vec::2X|scale_vec::4X|block16|block32?"


@form("tcgen05", f"op=mma {_GROUP} {_DENSE} ashift? {_COLLECT_A}?", "[a] av a a a a? a?")
@form("tcgen05", f"op=mma {_GROUP} {_DENSE} ashift? {_COLLECT_A}?", "[a] [a] a a a a? a?")
@form("tcgen05", f"op=mma {_GROUP} {_DENSE} ashift? {_COLLECT_A}?", "[a] a a a {a} a a?")
@form("tcgen05", f"op=mma {_GROUP} {_DENSE} ashift? {_COLLECT_A}?", "[a] [a] a a {a} a a?")
@form("tcgen05", f"op=mma {_GROUP} {_SCALED} block_scale {_VECTOR} {_COLLECT_A}?", "[a] a a a [a] [a] a")
@form("tcgen05", f"op=mma {_GROUP} {_SCALED} block_scale {_VECTOR} {_COLLECT_A}?", "[a] [a] a a [a] [a] a")
@form("tcgen05", f"op=mma sp {_GROUP} {_DENSE} ashift? {_COLLECT_A}?", "[a] a a [a] a a a?")
@form("tcgen05", f"op=mma sp {_GROUP} {_DENSE} ashift? {_COLLECT_A}?", "[a] [a] a [a] a a a?")
@form("tcgen05", f"op=mma sp {_GROUP} {_DENSE} ashift? {_COLLECT_A}?", "[a] a a [a] a {a} a a?")
@form("tcgen05", f"op=mma sp {_GROUP} {_DENSE} ashift? {_COLLECT_A}?", "[a] [a] a [a] a {a} a a?")
@form("tcgen05", f"op=mma sp {_GROUP} {_SCALED} block_scale {_VECTOR} {_COLLECT_A}?", "[a] a a [a] a [a] [a] a")
@form("tcgen05", f"op=mma sp {_GROUP} {_SCALED} block_scale {_VECTOR} {_COLLECT_A}?", "[a] [a] a [a] a [a] [a] a")
@form("tcgen05", f"op=mma ws group=cta_group::1 {_DENSE} {_COLLECT_B}?", "[a] a a a a a?")
@form("tcgen05", f"op=mma ws group=cta_group::1 {_DENSE} {_COLLECT_B}?", "[a] [a] a a a a?")
@form("tcgen05", f"op=mma ws sp group=cta_group::1 {_DENSE} {_COLLECT_B}?", "[a] a a [a] a a a?")
@form("tcgen05", f"op=mma ws sp group=cta_group::1 {_DENSE} {_COLLECT_B}?", "[a] [a] a [a] a a a?")
def mma(g: BlockCompiler, i: Decoded) -> None:
    """``tcgen05.mma``; collector hints change no result."""
    rest = list(i.operands)
    d, a, b = rest[:3]
    del rest[:3]
    metadata = rest.pop(0) if i.has("sp") else None
    idesc = rest.pop(0)
    masks: tuple[Operand, ...] = ()
    scale_addresses: list[Operand] = []
    if rest and isinstance(rest[0], VectorOperand):
        masks = rest.pop(0).items  # type: ignore[union-attr]
    while rest and isinstance(rest[0], AddressOperand):
        scale_addresses.append(rest.pop(0))
    enable = rest.pop(0)
    last = rest.pop(0) if rest else None
    shape = _mma_form(g, i, isinstance(a, AddressOperand))
    if masks and len(masks) != 4 * shape.group:
        raise g.fail(f"{len(masks)} words of disabled lanes, where cta_group::{shape.group} has {4 * shape.group}")
    scale_d, zero = 0, "0"
    if last is not None and shape.weight_stationary:
        zero = value(g, last, "b64")
    elif last is not None:
        if not isinstance(last, Immediate) or not 0 <= last.value <= 15 or shape.kind not in ("f16", "tf32"):
            raise g.fail("scale-input-d is a constant from 0 to 15, for kind::f16 and kind::tf32")
        scale_d = last.value
    g.place()
    scales = "".join(_tensor_value(g, address) + ", " for address in scale_addresses)
    words = "".join(value(g, word, "b32") + ", " for word in masks)
    arguments = (
        _tensor_value(g, d),
        _tensor_value(g, a) if isinstance(a, AddressOperand) else value(g, a, "b64"),
        value(g, b, "b64"),
        value(g, idesc, "b32"),
        g.scalar(enable, "pred") if g.is_uniform(enable) else g.array(enable, "pred"),
        str(scale_d),
        f"({words})",
        f"({scales})",
        _tensor_value(g, metadata) if metadata is not None else "0",
        zero,
        g.mask(),
    )
    g.effect(f"{g.helper(tensor_mma.issue_mma)}(w, {g.constant(shape)}, {', '.join(arguments)})")


def _tensor_value(g: BlockCompiler, operand: Operand) -> str:
    """A tensor-memory address: an int when uniform, else an array."""
    assert isinstance(operand, AddressOperand)
    _check_address(g, operand)
    return where_is(g, operand)


def _mma_form(g: BlockCompiler, i: Decoded, in_tensor_memory: bool) -> MmaForm:
    kind = i["kind"].removeprefix("kind::")
    if i.has("ashift") and not in_tensor_memory:
        raise g.fail(".ashift shifts A in tensor memory only")
    if i.has("ashift") and i.get("collector").endswith(("::fill", "::use")):
        raise g.fail(".ashift goes with collector::a::lastuse or collector::a::discard")
    return MmaForm(
        kind,
        _group(i),
        _scale_vector(g, i, kind),
        in_tensor_memory,
        i.has("sp"),
        i.has("ws"),
        i.has("ashift"),
    )


def _scale_vector(g: BlockCompiler, i: Decoded, kind: str) -> int:
    """Scales of a row in one instruction, from the kind and ``.scale_vec`` or ``.block``."""
    if not i.has("block_scale"):
        return 0
    sizes = {
        "mxf8f6f4": {"": 1, "scale_vec::1X": 1, "block32": 1},
        "mxf4": {"": 2, "scale_vec::2X": 2, "block32": 2},
        "mxf4nvf4": {"scale_vec::2X": 2, "block32": 2, "scale_vec::4X": 4, "block16": 4},
    }[kind]
    given = i.get("vector")
    if given not in sizes:
        legal = ", ".join("." + name for name in sizes if name)
        raise g.fail(f"kind::{kind} with {'.' + given if given else 'no scale size'}; legal: {legal}")
    return sizes[given]


# -- cp, shift, commit -----------------------------------------------------------------------------------------------

_COPIES = {
    "128x256b": (128, 2, (0, 32, 64, 96)),
    "128x128b": (128, 1, (0, 32, 64, 96)),
    "4x256b": (4, 2, (0, 1, 2, 3)),
    "64x128b.warpx2::02_13": (64, 1, (0, 32, 0, 32)),
    "64x128b.warpx2::01_23": (64, 1, (0, 0, 32, 32)),
    "32x128b.warpx4": (32, 1, (0, 0, 0, 0)),
}


@form(
    "tcgen05",
    f"op=cp {_GROUP} shape=128x256b|4x256b|128x128b|64x128b|32x128b multicast=warpx2::02_13|warpx2::01_23|warpx4? "
    "to=b8x16? from=b4x16_p64|b6x16_p32?",
    "[a] a",
)
def copy(g: BlockCompiler, i: Decoded) -> None:
    """``tcgen05.cp``."""
    name = i["shape"] + ("." + i["multicast"] if i.has("multicast") else "")
    if name not in _COPIES:
        raise g.fail(f"shape .{name}; legal: {', '.join('.' + known for known in _COPIES)}")
    if i.has("to") != i.has("from"):
        raise g.fail("decompression is written .b8x16.b4x16_p64 or .b8x16.b6x16_p32")
    rows, chunks, places = _COPIES[name]
    expansion = {"b4x16_p64": 4, "b6x16_p32": 6}.get(i.get("from"), 0)
    shape = CopyForm(rows, chunks, places, _group(i), expansion)
    address, descriptor = i.operands
    g.place()
    g.effect(
        f"{g.helper(tensor_pipe.issue_copy)}(w, {g.constant(shape)}, {_tensor_value(g, address)}, "
        f"{value(g, descriptor, 'b64')}, {g.mask()})"
    )


@form("tcgen05", f"op=shift {_GROUP} direction=down", "[a]")
def shift(g: BlockCompiler, i: Decoded) -> None:
    """``tcgen05.shift``."""
    g.place()
    g.effect(f"{g.helper(tensor_pipe.issue_shift)}(w, {_group(i)}, {_tensor_value(g, i.operands[0])}, {g.mask()})")


@form(
    "tcgen05",
    f"op=commit {_GROUP} how=mbarrier::arrive::one space=shared::cluster? multicast=multicast::cluster? type=b64",
    "[a] a?",
)
def commit(g: BlockCompiler, i: Decoded) -> None:
    """``tcgen05.commit``."""
    if len(i.operands) != 1 + i.has("multicast"):
        raise g.fail("a CTA mask goes with .multicast::cluster, and only with it")
    ctas = value(g, i.operands[1], "b16") if i.has("multicast") else "None"
    space = "shared" if i.has("space") else "generic"
    g.place()
    g.effect(
        f"{g.helper(tensor_pipe.issue_commit)}(w, {_group(i)}, {space!r}, {where_is(g, i.operands[0])}, {ctas}, "
        f"{g.mask()})"
    )


# -- ld, st ----------------------------------------------------------------------------------------------------------

_SHAPES = "shape=32x32b|16x64b|16x128b|16x256b|16x32bx2 repeat=" + "|".join(f"x{1 << n}" for n in range(8))


def _register_shape(g: BlockCompiler, i: Decoded, split: Operand | None, vector: Operand) -> RegisterShape:
    columns = 0
    if (i["shape"] == "16x32bx2") != (split is not None):
        raise g.fail("a column offset goes with .16x32bx2, and only with it")
    if split is not None:
        assert isinstance(split, Immediate)
        columns = split.value
    shape = RegisterShape(i["shape"], int(i["repeat"][1:]), i.has("pack"), columns)
    if shape.registers > 128:
        raise g.fail(f".{i['shape']} goes to .x{128 * shape.repeat // shape.registers}")
    assert isinstance(vector, VectorOperand)
    if len(vector.items) != shape.registers:
        raise g.fail(f"{len(vector.items)} registers, where .{i['shape']}.{i['repeat']} has {shape.registers}")
    return shape


@form("tcgen05", f"op=ld sync aligned {_SHAPES} pack=pack::16b? type=b32", "{d} [a] #?", uniform=never)
def load(g: BlockCompiler, i: Decoded) -> None:
    """``tcgen05.ld``."""
    d, address = i.operands[:2]
    assert isinstance(d, VectorOperand)
    shape = _register_shape(g, i, i.operands[2] if len(i.operands) > 2 else None, d)
    rows, bits = tile_rows_of(g, d)
    g.place()
    g.effect(
        f"{g.helper(tensor_warp.issue_load)}(w, {g.constant(shape)}, {_address(g, address)}, {g.constant(rows)}, "
        f"{g.constant(bits)})"
    )


@form("tcgen05", f"op=st sync aligned {_SHAPES} pack=unpack::16b? type=b32", "[a] {a}")
@form("tcgen05", f"op=st sync aligned {_SHAPES} pack=unpack::16b? type=b32", "[a] # {a}")
def store(g: BlockCompiler, i: Decoded) -> None:
    """``tcgen05.st``."""
    address, source = i.operands[0], i.operands[-1]
    shape = _register_shape(g, i, i.operands[1] if len(i.operands) > 2 else None, source)
    assert isinstance(source, VectorOperand)
    registers = "".join(g.array(item, "b32") + ", " for item in source.items)
    g.place()
    g.effect(f"{g.helper(tensor_warp.issue_store)}(w, {g.constant(shape)}, {_address(g, address)}, ({registers}))")


@form("tcgen05", "op=wait::ld sync aligned", "")
def wait_load(g: BlockCompiler, i: Decoded) -> None:
    """``tcgen05.wait::ld``."""
    g.place()
    g.effect(f"{g.helper(tensor_warp.wait_loads)}(w)")


@form("tcgen05", "op=wait::st sync aligned", "")
def wait_store(g: BlockCompiler, i: Decoded) -> None:
    """``tcgen05.wait::st``."""
    g.place()
    g.effect(f"{g.helper(tensor_warp.wait_stores)}(w)")


@form("tcgen05", "op=fence::before_thread_sync", "")
def fence_before(g: BlockCompiler, i: Decoded) -> None:
    """``tcgen05.fence::before_thread_sync``."""
    g.effect(f"{g.helper(tensor_order.fence_before)}(w)")


@form("tcgen05", "op=fence::after_thread_sync", "")
def fence_after(g: BlockCompiler, i: Decoded) -> None:
    """``tcgen05.fence::after_thread_sync``."""
    g.effect(f"{g.helper(tensor_order.fence_after)}(w)")
