"""Floors of fused residuals: the plain convolution's time, or that of all bytes."""

from __future__ import annotations

from typing import Any

from benchmarks.residual_floors import BYTES_PER_SECOND, floors


def _case(kind: str, size: float, ours: float, plain: float) -> dict[str, Any]:
    results = [
        {"name": "tilekit", "us": ours},
        {"name": "tilekit, nothing fused", "us": plain},
        {"name": "cuDNN", "us": 1},
    ]
    return {"label": "a layer", "kind": kind, "bytes": size, "results": results}


def test_the_larger_is_the_floor() -> None:
    """Of a layer that computes the plain one's time, of one that waits for memory its bytes'; others have none."""
    computes, waits = _case("bf16 +residual", 1e3, 11, 10), _case("bf16 +residual", BYTES_PER_SECOND * 2e-5, 25, 10)
    found = list(floors([computes, _case("bf16 +bias", 1e3, 11, 10), waits]))
    assert [(round(ratio, 3), floor) for ratio, _, _, _, floor in found] == [(1.1, 10), (1.25, 20)]
