"""``wgmma`` (PTX ISA 9.7.15)."""

from __future__ import annotations

from functools import lru_cache

from tilekit.emulator.ptx.compiler.block_compiler import BlockCompiler
from tilekit.emulator.ptx.language.forms import Decoded, form, never
from tilekit.emulator.ptx.language.syntax import Immediate, Operand, RegisterOperand, VectorOperand
from tilekit.emulator.ptx.matrix import wgmma_queue
from tilekit.emulator.ptx.matrix.wgmma import Wgmma
from tilekit.emulator.ptx.ops.barrier import same_in_warp


def _shapes(*depths: int) -> str:
    return "|".join(f"m64n{n}k{k}" for k in depths for n in range(8, 257, 8))


_form = lru_cache(maxsize=None)(Wgmma)
"""Forms by their fields: equal ones are one object."""
_TYPES = "f16|bf16|tf32|e4m3|e5m2|s8|u8"


@form(
    "wgmma",
    f"op=mma_async sync aligned shape={_shapes(8, 16, 32)} satfinite? dtype=f16|f32|s32 atype={_TYPES} btype={_TYPES}",
    "{d+} av a a #? #? #? #?",
    uniform=never,
)
@form(
    "wgmma",
    f"op=mma_async sync aligned shape={_shapes(256)} dtype=s32 atype=b1 btype=b1 and popc",
    "{d+} av a a",
    uniform=never,
)
@form(
    "wgmma",
    f"op=mma_async sp sync aligned shape={_shapes(16, 32, 64)} satfinite? dtype=f16|f32|s32 atype={_TYPES} "
    f"btype={_TYPES}",
    "{d+} av a a # a #? #? #? #?",
    uniform=never,
)
def mma_async(g: BlockCompiler, i: Decoded) -> None:
    """``wgmma.mma_async`` and ``wgmma.mma_async.sp``."""
    d, a, b, *rest = i.operands
    metadata = rest[:2] if i.has("sp") else []
    accumulate, *constants = rest[2:] if metadata else rest
    numbers = [operand.value for operand in constants if isinstance(operand, Immediate)]
    in_registers = isinstance(a, VectorOperand)
    kind = i["atype"]
    transposable = 0 if kind not in ("f16", "bf16") else 1 if in_registers else 2
    wanted = 0 if kind in ("s8", "u8", "b1") else 2 + transposable
    if len(numbers) != wanted:
        raise g.fail(f"{len(numbers)} constants after scale-d, where .{kind} takes {wanted} (scales, transposes)")
    scales = numbers[:2] or [1, 1]
    if any(scale not in (1, -1) for scale in scales) or any(flag not in (0, 1) for flag in numbers[2:]):
        raise g.fail("scales of A and B are 1 or -1, transposes 0 or 1")
    n = int(i["shape"].split("n")[1].split("k")[0])
    try:
        shape = _form(
            n,
            kind,
            i["btype"],
            i["dtype"],
            a_mn_major=transposable == 2 and numbers[2] == 1,
            b_mn_major=transposable > 0 and numbers[-1] == 1,
            negate_a=scales[0] == -1,
            negate_b=scales[1] == -1,
            saturate=i.has("satfinite"),
            sparse=i.has("sp"),
        )
    except ValueError as error:
        raise g.fail(str(error)) from None
    if i["shape"] != f"m64n{n}k{shape.k}":
        raise g.fail(f"the shape for .{kind} is m64n{n}k{shape.k}")
    assert isinstance(d, VectorOperand)
    if len(d.items) != shape.registers:
        raise g.fail(f"{len(d.items)} accumulator registers, where the shape has {shape.registers}")
    rows, bits = tile_rows_of(g, d)
    a_rows = "None"
    if isinstance(a, VectorOperand):
        if len(a.items) != 4:
            raise g.fail(f"{len(a.items)} A registers, where there are 4")
        fragment, a_bits = tile_rows_of(g, a)
        bits |= a_bits
        a_rows = g.constant(fragment)
        a_text = "None"
    else:
        a_text = _descriptor(g, a)
    sparse = ""
    if metadata:
        words, selector = metadata
        assert isinstance(selector, Immediate)
        sparse = f", {g.array(words, 'u32')}, {selector.value}"
    g.place()
    scale_d = (
        g.scalar(accumulate, "pred")
        if g.is_uniform(accumulate)
        else (f"bool({g.helper(same_in_warp)}(w, {g.array(accumulate, 'pred')}))")
    )
    g.effect(
        f"{g.helper(wgmma_queue.issue_wgmma)}(w, {g.constant(shape)}, {g.constant(rows)}, {g.constant(bits)}, "
        f"{a_text}, {a_rows}, {_descriptor(g, b)}, {scale_d}, {g.mask()}{sparse})"
    )


def _descriptor(g: BlockCompiler, operand: Operand) -> str:
    if g.is_uniform(operand):
        return g.scalar(operand, "b64")
    return f"{g.helper(same_in_warp)}(w, {g.array(operand, 'b64')})"


def tile_rows_of(g: BlockCompiler, vector: VectorOperand) -> tuple[wgmma_queue.Rows, int]:
    """Tile-file rows of a register list, and the same as a bit set."""
    rows = []
    for item in vector.items:
        if not isinstance(item, RegisterOperand):
            raise g.fail("a matrix operand is a list of registers")
        g.check_width(item.register, "b32")
        rows.append(g.program.tile_rows[item.register.number])
    bits = 0
    for row in rows:
        bits |= 1 << row
    if rows == list(range(rows[0], rows[0] + len(rows))):
        return slice(rows[0], rows[0] + len(rows)), bits
    return tuple(rows), bits


@form("wgmma", "op=fence sync aligned", "")
def fence(g: BlockCompiler, i: Decoded) -> None:
    """``wgmma.fence``."""
    g.effect(f"{g.helper(wgmma_queue.fence_wgmma)}(w)")


@form("wgmma", "op=commit_group sync aligned", "")
def commit(g: BlockCompiler, i: Decoded) -> None:
    """``wgmma.commit_group``."""
    g.effect(f"{g.helper(wgmma_queue.commit_wgmma)}(w)")


@form("wgmma", "op=wait_group sync aligned", "#", flow="wait")
def wait(g: BlockCompiler, i: Decoded) -> None:
    """``wgmma.wait_group``."""
    count = i.operands[0]
    assert isinstance(count, Immediate)
    g.place()
    g.emit(f"if not {g.helper(wgmma_queue.wait_wgmma)}(w, {count.value}): return WAIT")
