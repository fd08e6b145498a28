"""The emulator's units against what an H200 did with the same random inputs (see h200/README.md)."""

from __future__ import annotations

import json
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from tilekit.emulator.core.arithmetic.formats import decode, encode, pack_pair
from tilekit.emulator.ptx.copies.tensor_copy import load_box, reduce_box, store_box
from tilekit.emulator.ptx.matrix.wgmma import Wgmma, load_a, load_b, multiply_accumulate
from tilekit.emulator.ptx.memory.tensor_map import PixelBox, TensorMap

RECORDS = Path(__file__).parent / "h200"
COPIES = json.loads((RECORDS / "tensor_copies.json").read_text())
OPERATIONS = sorted({record[0] for record in COPIES})


def tensor_map(fields: list[Any], interleave: Any = None) -> TensorMap:
    """A map from its recorded fields, unchecked."""
    address, dtype, dims, strides, box, steps, swizzle, oob_fill, *pixels = fields
    column = None
    if pixels and pixels[0]:
        lower, upper, channels, length = pixels[0]
        column = PixelBox(tuple(lower), tuple(upper), channels, length)
    return TensorMap(
        address, dtype, tuple(dims), tuple(strides), tuple(box), column, tuple(steps), interleave, swizzle, oob_fill
    )


@cache
def random_bytes(seed: int, size: int) -> npt.NDArray[np.uint8]:
    """The memory contents of the recording."""
    return np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_tensor_copies(operation: str) -> None:
    """Loads, stores and reductions give the recorded bytes, and are refused exactly where the instruction faulted."""
    done = 0
    for op, fields, coords, offsets, shared_address, crc in COPIES:
        if op != operation:
            continue
        described = tensor_map(fields)
        memory = random_bytes(42, 1 << 21)
        image = random_bytes(43, 196608)[shared_address : shared_address + described.shared_bytes]
        try:
            if op == "load":
                result = load_box(described, coords, memory, described.address, shared_address, offsets)
            else:
                result = memory[:131072].copy()
                if op == "store":
                    store_box(described, coords, result, described.address, image, shared_address)
                else:
                    reduce_box(described, coords, result, described.address, image, shared_address, op)
            found = zlib.crc32(result.tobytes())
        except ValueError:
            found = None
        assert found == crc, (fields, coords, offsets)
        done += 1
    assert done > 5


def test_driver_verdicts() -> None:
    """A map has problems, or needs a newer architecture, exactly where the driver refused it."""
    for (*fields, interleave), accepted in json.loads((RECORDS / "tensor_map_verdicts.json").read_text()):
        described = tensor_map(fields, interleave)
        legal = not described.problems() and described.minimum_sm <= 90
        assert legal == bool(accepted), (fields, interleave, described.problems())


@pytest.mark.parametrize("a_mn_major", [False, True])
@pytest.mark.parametrize("b_mn_major", [False, True])
def test_wgmma_layouts(a_mn_major: bool, b_mn_major: bool) -> None:
    """Random descriptors (all swizzles, any strides, misaligned starts, base offsets) read the recorded elements."""
    rng = np.random.default_rng(
        {(False, False): 0, (False, True): 8, (True, False): 9, (True, True): 10}[a_mn_major, b_mn_major]
    )

    def half(size: int) -> npt.NDArray[np.uint8]:
        return rng.integers(-8, 9, size).astype(np.float32).astype(ml_dtypes.bfloat16).view(np.uint8)[:size]

    shared = np.concatenate([half(65536), half(131072)])
    accumulator = rng.integers(-50, 50, (32, 128)).astype(np.float32).view(np.uint32)
    op = Wgmma(64, "bf16", "bf16", "f32", a_mn_major=a_mn_major, b_mn_major=b_mn_major)
    for a_major, b_major, a, b, crc in json.loads((RECORDS / "wgmma_layouts.json").read_text()):
        if (a_major, b_major) == (a_mn_major, b_mn_major):
            operands = load_a(op, shared, [int(a, 16)]), load_b(op, shared, [int(b, 16)])
            registers = multiply_accumulate(op, *operands, accumulator)
            assert zlib.crc32(registers.tobytes()) == crc, (a, b)


ROUNDING = np.load(RECORDS / "wgmma_rounding.npz")


@pytest.mark.parametrize("types", sorted({name.split(".")[0] for name in ROUNDING.files}))
def test_wgmma_rounding(types: str) -> None:
    """The exact arithmetic gives the recorded bits of random products; the fast one is as near as the type allows."""
    a_type, b_type, d_type = types.split("-")
    a, b, before, after = (ROUNDING[f"{types}.{part}"] for part in "abcd")
    op = Wgmma(len(b), a_type, b_type, d_type)
    # K-major without swizzle: 8 rows of 16 bytes to a core matrix, two of those along K.
    shared = np.concatenate([m.reshape(-1, 8, 2, 16).transpose(0, 2, 1, 3).reshape(-1) for m in (a, b)])
    a_bits, b_bits = (start >> 4 | 128 >> 4 << 16 | 256 >> 4 << 32 for start in (0, a.size))
    operands = load_a(op, shared, [a_bits]), load_b(op, shared, [b_bits])
    np.testing.assert_array_equal(multiply_accumulate(op, *operands, before, exact=True), after)
    fast = multiply_accumulate(op, *operands, before)
    kind = np.float32 if d_type == "f32" else np.float16
    error = np.abs(fast.view(kind).astype(np.float64) - after.view(kind)).max()
    assert error < (0.02 if "e4m3" in types else 5e-6)


CONVERSIONS = np.load(RECORDS / "conversions.npz")


@pytest.mark.parametrize("form", [name for name in CONVERSIONS.files if not name.endswith(".in")])
def test_conversions(form: str) -> None:
    """Every cvt form gives the recorded bits, NaN patterns included."""
    target, *rest = form.split("_")
    options: dict[str, Any] = {"relu": "relu" in rest, "saturate": "sat" in rest, "ftz": "ftz" in rest}
    rounding: Any = next((word for word in rest if word in ("rn", "rz", "rm", "rp", "rna")), "rn")
    halves = CONVERSIONS["b16.in"]
    if target == "f32" and rest[0] != "f64":
        found = decode(halves, rest[0]).view(np.uint32)
    elif target == "f32":
        found = encode(CONVERSIONS["f64.in"].view(np.float64), "f32", rounding, **options)
    elif rest and rest[0] in ("e4m3", "e5m2"):
        upper, lower = (encode(decode(part, rest[0]), "f16") for part in (halves >> 8, halves & 0xFF))
        found = pack_pair(upper, lower, 16)
    else:
        options["saturate"] |= target in ("e4m3", "e5m2")
        found = encode(CONVERSIONS["f32.in"].view(np.float32), target, rounding, **options)
    np.testing.assert_array_equal(found, CONVERSIONS[form])
