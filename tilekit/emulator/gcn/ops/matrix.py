"""Matrix instructions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilekit.emulator.gcn.compiler.emitter import Emitter
from tilekit.emulator.gcn.compiler.operands import bits_of, unsupported
from tilekit.emulator.gcn.language.syntax import Constant, Instruction
from tilekit.emulator.gcn.matrix.products import FORMATS, index_sets, multiply, registers_of
from tilekit.emulator.gcn.matrix.shapes import SHAPES
from tilekit.emulator.gcn.ops.table import op

if TYPE_CHECKING:
    from tilekit.emulator.gcn.execution.batch import Batch
    from tilekit.emulator.gcn.matrix.shapes import Shape


@op(*SHAPES)
def matrix(e: Emitter, i: Instruction) -> None:
    """D = A B + C; EXEC does not matter."""
    shape = SHAPES[i.name]
    e.begin(i, ())
    if e.chip.name not in shape.chips:
        raise unsupported(i, f"is an instruction of {' and '.join(shape.chips)}, and the device is a {e.chip.name}")
    scaled = "scale" in i.name
    if len(i.operands) != (6 if scaled else 4):
        raise unsupported(i, f"takes {6 if scaled else 4} operands")
    kinds = _kinds(i, shape)
    count = shape.m * shape.n * shape.blocks // 64 * (2 if shape.result == "f64" else 1)
    target = e.vector(i.operands[0], count)
    a = e.vector(i.operands[1], registers_of(shape, shape.m, kinds[0]) // (2 if shape.sparse else 1))
    b = e.vector(i.operands[2], registers_of(shape, shape.n, kinds[1]))
    third = i.operands[3]
    if shape.sparse:
        index = e.vector(third, 1), _set_of(i, shape)
        step = e.name(_Step(shape, kinds, target, a, b, -1 - target), "mfma")
        e.add(f"{step}(B, None, {index})")
        return
    if isinstance(third, Constant):
        c = bits_of(third, {"f64": "f64", "i32": "u32"}.get(shape.result, "f32"))
    else:
        c = -1 - e.vector(third, count)
    scales = "None"
    if scaled:
        low, high = (i.modifiers.get(name, [0, 0, 0]) for name in ("op_sel", "op_sel_hi"))
        parts = [(e.vector(i.operands[4 + side], 1), low[side] + 2 * high[side]) for side in range(2)]
        scales = str((*parts[0], *parts[1]))
    step = e.name(_Step(shape, kinds, target, a, b, c), "mfma")
    e.add(f"{step}(B, {scales})")


def _kinds(i: Instruction, shape: Shape) -> tuple[str, str]:
    modifiers = i.modifiers
    if shape.a == "f8f6f4":
        found = [modifiers.get(name, 0) for name in ("cbsz", "blgp")]
        if not all(value in range(5) for value in found):
            raise unsupported(i, "has a format that is not 0 to 4")
        return FORMATS[found[0]], FORMATS[found[1]]
    for name in ("blgp", "neg") if shape.sparse else ("cbsz", "abid", "blgp", "neg"):
        if modifiers.get(name):
            raise unsupported(i, f"with {name} is not executed")
    return shape.a, shape.b


def _set_of(i: Instruction, shape: Shape) -> int:
    """The set of indices that a sparse instruction takes: the first, or with ``cbsz:0`` that of ``abid``."""
    place = i.modifiers.get("abid", 0)
    if i.modifiers.get("cbsz", 0):
        return 0
    if not 0 <= place < index_sets(shape):
        raise unsupported(i, f"has abid:{place}; legal: 0 to {index_sets(shape) - 1}")
    return int(place)


class _Step:
    """One matrix instruction with its registers."""

    def __init__(self, shape: Shape, kinds: tuple[str, str], target: int, a: int, b: int, c: int) -> None:
        self.shape = shape
        self.kinds = kinds
        self.target = target
        self.a = slice(a, a + registers_of(shape, shape.m, kinds[0]) // (2 if shape.sparse else 1))
        self.b = slice(b, b + registers_of(shape, shape.n, kinds[1]))
        self.count = shape.m * shape.n * shape.blocks // 64 * (2 if shape.result == "f64" else 1)
        self.c = c

    def __call__(
        self, batch: Batch, scales: tuple[int, int, int, int] | None, index: tuple[int, int] | None = None
    ) -> None:
        """Execute it for the waves of a batch."""
        rows = batch.V
        third = rows[-1 - self.c : -1 - self.c + self.count] if self.c < 0 else self.c
        factors = None
        if scales is not None:
            factors = rows[scales[0]], scales[1], rows[scales[2]], scales[3]
        sources = rows[self.a], rows[self.b], third
        rows[self.target : self.target + self.count] = multiply(
            self.shape,
            self.kinds,
            sources,
            batch.launch.chip.fnuz,
            factors,
            exact=batch.launch.exact,
            sparse=None if index is None else (rows[index[0]], index[1]),
        )
        shape = self.shape
        batch.launch.flops += 2 * shape.m * shape.n * shape.k * shape.blocks * batch.W
