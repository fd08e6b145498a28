"""Single elements of a matrix in global memory: rounded and stored, loaded and widened, each under a predicate."""

from __future__ import annotations

from collections.abc import Sequence

from tilekit.assembly.types import B32
from tilekit.assembly.types import F32 as FLOAT
from tilekit.assembly.values import RegisterTile, Value
from tilekit.assembly.writer import Writer
from tilekit.dtypes import BF16, E4M3, F32, DType


def store_element(w: Writer, dtype: DType, *, address: Value, value: Value, valid: Value) -> None:
    """Round an f32 to `dtype` and store it if `valid`; 8-bit types take their largest number where it is too large.

    Of s32 the f32 has the bits.
    """
    if dtype.bits == 32:
        w.isa.memory.store_global_f32(address=address, value=value, valid=valid)
    elif dtype.bits == 16:
        pack = w.isa.convert.pack_bf16 if dtype == BF16 else w.isa.convert.pack_f16
        narrow, _ = w.isa.convert.unpack(packed=pack(low=value, high=0.0))
        w.isa.memory.store_global_b16(address=address, value=narrow, valid=valid)
    else:
        pack = w.isa.convert.pack_e4m3 if dtype == E4M3 else w.isa.convert.pack_e5m2
        w.isa.memory.store_global_b8(address=address, value=pack(low=value, high=0.0), valid=valid)


def pack_elements(w: Writer, dtype: DType, values: Sequence[Value]) -> list[Value]:
    """Round f32 to `dtype` and pack them into words, the first lowest; what is too large becomes the largest number.

    Two values of 8 bits are a pair of bytes, no word.
    """
    convert, join = w.isa.convert, w.isa.convert.join_bytes
    if dtype.bits == 32:
        return [value.retyped(B32) for value in values]
    if dtype.bits == 16:
        pack = convert.pack_bf16 if dtype == BF16 else convert.pack_f16
        return [pack(low=low, high=high) for low, high in zip(values[::2], values[1::2], strict=True)]
    pack = convert.pack_e4m3 if dtype == E4M3 else convert.pack_e5m2
    pairs = [pack(low=low, high=high) for low, high in zip(values[::2], values[1::2], strict=True)]
    if len(pairs) == 1:
        return pairs
    return [join(first=one, second=two) for one, two in zip(pairs[::2], pairs[1::2], strict=True)]


def store_elements(w: Writer, dtype: DType, *, address: Value, values: Sequence[Value], valid: Value) -> None:
    """Round f32 to `dtype` and store them together if `valid`: 1, 2, 4, 8 or 16 bytes, aligned as all."""
    count = len(values) * dtype.bytes
    if len(values) == 1:
        store_element(w, dtype, address=address, value=values[0], valid=valid)
        return
    words = pack_elements(w, dtype, values)
    if count == 2:
        w.isa.memory.store_global_b16(address=address, value=words[0], valid=valid)
        return
    if count == 4:
        w.isa.memory.store_global_f32(address=address, value=words[0].retyped(FLOAT), valid=valid)
        return
    store = w.isa.memory.store_global_b32x2 if count == 8 else w.isa.memory.store_global_b32x4
    store(address=address, values=RegisterTile(words), valid=valid)


def load_element(w: Writer, dtype: DType, *, address: Value, valid: Value) -> Value:
    """Load an element of 16 or 32 bits as f32 if `valid`, else 0, from memory that is not written meanwhile."""
    if dtype == F32:
        return w.isa.memory.load_global_f32(address=address, valid=valid)  # type: ignore[no-any-return]
    narrow = w.isa.memory.load_global_b16(address=address, valid=valid)
    widen = w.isa.convert.widen_bf16 if dtype == BF16 else w.isa.convert.widen_f16
    return widen(narrow=narrow)  # type: ignore[no-any-return]
