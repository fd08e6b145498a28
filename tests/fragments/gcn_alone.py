"""One GCN fragment in a kernel of its own on the emulator: operands in, outputs and memory back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilekit.assembly.fragment_files import fragments_of
from tilekit.assembly.types import F32, GMEM, PRED, SMEM, U32
from tilekit.assembly.values import RegisterTile, Value
from tilekit.assembly.writer import Writer
from tilekit.emulator import Device
from tilekit.targets import CHIPS

Array = npt.NDArray[Any]
THREADS = 64


@dataclass
class Alone:
    """What came out.

    Attributes
    ----------
    outputs
        By name, uint32[threads] or, of lists and of 64 bits, uint32[threads, words].
    memory, lds
        What was there in the end, as bytes.
    text
        The kernel.
    """

    outputs: dict[str, Array]
    memory: Array
    lds: Array
    text: str

    @property
    def only(self) -> Array:
        """The only output."""
        (found,) = self.outputs.values()
        return found


def run(
    chip: str,
    group: str,
    name: str,
    *,
    memory: Array | None = None,
    lds: Array | None = None,
    threads: int = THREADS,
    grid: int = 1,
    seed: int = 0,
    **given: Any,
) -> Alone:
    """Run a fragment in each thread.

    An operand is an array with a row a thread, or a number; of addresses it is the offset in `memory` or `lds`.
    Immediates are given as they are.
    """
    fragment = fragments_of(CHIPS[chip])[group][name]
    memory = np.zeros(1024, np.uint8) if memory is None else memory.view(np.uint8).ravel()
    lds = np.zeros(0, np.uint8) if lds is None else lds.view(np.uint8).ravel()
    w = Writer("alone", target=chip, threads=threads)
    given_data, out, scratch, image = (w.parameter(n, GMEM) for n in ("data", "out", "scratch", "image"))
    thread = w.thread()
    block = w.shared.allocate("block", size=len(lds), alignment=16).at(w, w.constant(U32, 0)) if len(lds) else None
    columns: list[Array] = []

    def load(values: Array, type_: Any) -> Value:
        """One register of a type, from data; f32 registers and others are told apart."""
        columns.append(values.view(np.uint32))
        address = (given_data + w.widen_multiply(thread + (len(columns) - 1) * threads, 4)).retyped(GMEM)
        load_one = w.isa.memory.load_global_scalar if type_ is F32 else w.isa.memory.load_acquire_gpu
        value: Value = load_one(address=address)
        return value

    operands: dict[str, Any] = {}
    for operand in fragment.inputs.values():
        value, type_ = given[operand.name], operand.type
        if isinstance(value, (Value, RegisterTile)) or not isinstance(value, np.ndarray):
            if type_ is GMEM:
                operands[operand.name] = (scratch + int(value)).retyped(GMEM) if value else scratch
            elif type_ is SMEM:
                operands[operand.name] = block + int(value)
            else:
                operands[operand.name] = value if not isinstance(value, int) or type_ is not PRED else bool(value)
        elif operand.length is not None:
            tile = w.tile(type_, value.shape[1], operand.name)
            for i, register in enumerate(tile):
                register.assign(load(np.ascontiguousarray(value[:, i]), type_).retyped(type_))
            operands[operand.name] = tile
        elif type_ is PRED:
            operands[operand.name] = load(value.astype(np.uint32), U32) != 0
        elif type_ is GMEM:
            operands[operand.name] = (scratch + w.widen_multiply(load(value.astype(np.uint32), U32), 1)).retyped(GMEM)
        elif type_ is SMEM:
            operands[operand.name] = (block + load(value.astype(np.uint32), U32)).retyped(SMEM)
        elif type_.bits == 64:
            low, high = (load((value >> np.uint64(s)).astype(np.uint32), U32) for s in (0, 32))
            operands[operand.name] = (w.widen_multiply(high, 1) << 32) + w.widen_multiply(low, 1)
        elif type_.bits == 16:
            operands[operand.name] = w.isa.convert.narrow_u16(wide=load(value.astype(np.uint32), U32))
        else:
            operands[operand.name] = load(value, type_).retyped(type_)
    operands |= {i.name: given[i.name] for i in fragment.immediates}
    if block is not None:
        for start in range(0, len(lds), 4 * threads):
            address = image + w.widen_multiply(thread + start // 4, 4)
            w.isa.memory.store_shared_b32(
                address=block + thread * 4 + start, value=w.isa.memory.load_acquire_gpu(address=address.retyped(GMEM))
            )
        w.isa.barrier.sync_cta()
    found = w.place(fragment, **operands)
    results = dict(zip([o.name for o in fragment.operands if o.direction == "out"],
                       found if isinstance(found, tuple) else [found], strict=False))  # fmt: skip
    results |= {o.name: operands[o.name] for o in fragment.operands if o.direction == "inout"}
    if block is not None:
        w.isa.barrier.sync_cta()
        for start in range(0, len(lds), 4 * threads):
            address = (image + w.widen_multiply(thread + start // 4, 4)).retyped(GMEM)
            now = w.isa.memory.load_shared_f32(address=block + thread * 4 + start)
            w.isa.memory.store_global_f32(address=address, value=now, valid=w.constant(PRED, 1))
    shapes: dict[str, int] = {}
    rows = 0
    for key, value in results.items():
        values = _words(w, value)
        shapes[key] = len(values)
        for each in values:
            address = (out + w.widen_multiply(thread + rows * threads, 4)).retyped(GMEM)
            if each.type is F32:
                w.isa.memory.store_global_f32(address=address, value=each, valid=w.constant(PRED, 1))
            elif each.type.bits == 16:
                w.isa.memory.store_global_b16(address=address, value=each, valid=w.constant(PRED, 1))
            else:
                w.isa.memory.store_release_gpu(address=address, value=each.retyped(U32))
            rows += 1
    device = Device(chip, seed=seed)
    data = np.concatenate(columns) if columns else np.zeros(1, np.uint32)
    arrays = {
        "data": data,
        "out": np.zeros(max(rows, 1) * threads, np.uint32),
        "memory": memory,
        "image": lds if len(lds) else np.zeros(4, np.uint8),
    }
    buffers = [device.buffer(array, title) for title, array in arrays.items()]
    text = w.text()
    report = device.load(text)["alone"].launch(grid=grid, block=threads, args=buffers)
    assert not report.findings, report
    words = buffers[1].read().reshape(-1, threads)
    outputs, at = {}, 0
    for key, count in shapes.items():
        outputs[key] = words[at] if count == 1 else words[at : at + count].T.copy()
        at += count
    return Alone(outputs, buffers[2].read(), buffers[3].read(), text)


def _words(w: Writer, value: Any) -> list[Value]:
    if value is None:
        return []
    if isinstance(value, RegisterTile):
        return list(value)
    if value.type is PRED:
        return [w.select(value, w.constant(U32, 1), 0, U32)]
    if value.type.bits == 64:
        return [w.isa.convert.low_word(wide=value), w.isa.convert.low_word(wide=value >> 32)]
    return [value]
