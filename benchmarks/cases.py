"""The lists of shapes. They are fixed: a result is only comparable with another of the same list."""

from __future__ import annotations

SQUARES = tuple(f"{n}x{n}x{n}" for n in (512, 1024, 2048, 4096, 8192, 16384))

# N, K of an 8-billion-parameter transformer's projections: attention output, fused QKV, fused gate and up, down.
_PROJECTIONS = ((4096, 4096), (6144, 4096), (28672, 4096), (4096, 14336))
DECODE = tuple(f"{m}x{n}x{k}" for n, k in _PROJECTIONS for m in (1, 16, 64))
PREFILL = tuple(f"{m}x{n}x{k}" for n, k in _PROJECTIONS for m in (256, 1024, 4096))

# Extents that no tile divides; rows of the operands are padded to 16 bytes.
RAGGED = ("4095x4095x4095", "1000x1000x1000", "3000x5003x2048", "129x4097x4096")

BATCHED = ("64x512x512x512", "32x2048x128x2048", "16x1024x1024x1024")

SUITES = {
    "smoke": ("512x512x512", "4096x4096x4096", "64x4096x4096"),
    "squares": SQUARES,
    "decode": DECODE,
    "prefill": PREFILL,
    "ragged": RAGGED,
    "batched": BATCHED,
    "all": tuple(dict.fromkeys((*SQUARES, *DECODE, *PREFILL, *RAGGED, *BATCHED))),
}
