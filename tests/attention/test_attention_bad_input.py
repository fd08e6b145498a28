"""What attention refuses, by name, before anything is launched."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilekit
from tilekit.errors import TilekitError

Q = np.zeros((2, 8, 4, 64), np.float16)
K = np.zeros((2, 8, 2, 64), np.float16)


def arrays(**other: Any) -> dict[str, Any]:
    """A good call, with something in the place of one of its arguments."""
    return {"q": Q, "k": K, "v": K, **other}


def blackwell(**choices: int) -> dict[str, Any]:
    """A good call on sm_100a, with a config."""
    return arrays(target="sm_100a", config=tilekit.BlackwellAttentionConfig(**choices))


def wide(elements: int) -> dict[str, Any]:
    """Operands of that head dim, with too many queries to share a tile."""
    return dict.fromkeys("qkv", np.zeros((1, 80, 2, elements), np.float16))


BAD: dict[str, tuple[dict[str, Any], str, str]] = {
    "three dimensions": (arrays(q=Q[0]), "TK-ATT-001", "q has shape"),
    "another type": (arrays(q=Q.astype(np.float32)), "TK-ATT-001", "q's type"),
    "8-bit floats": (
        dict.fromkeys("qkv", Q.astype(ml_dtypes.float8_e4m3fn)),
        "TK-ATT-001",
        "q's type: given 'e4m3'; legal: bf16, f16 .attention of 8-bit floats is not built.",
    ),
    "types that differ": (
        arrays(k=K.astype(ml_dtypes.bfloat16), v=K.astype(ml_dtypes.bfloat16)),
        "TK-ATT-001",
        "k's type",
    ),
    "a head dim of 12": (arrays(q=np.zeros((2, 8, 4, 12), np.float16)), "TK-ATT-001", "nearest legal: 16"),
    "a head dim of 264": (arrays(q=np.zeros((2, 8, 4, 264), np.float16)), "TK-ATT-001", "nearest legal: 256"),
    "heads that do not divide": (
        arrays(k=np.zeros((2, 8, 3, 64), np.float16), v=np.zeros((2, 8, 3, 64), np.float16)),
        "TK-ATT-001",
        "nearest legal: 2",
    ),
    "a batch that differs": (
        arrays(k=np.zeros((1, 8, 2, 64), np.float16), v=np.zeros((1, 8, 2, 64), np.float16)),
        "TK-ATT-001",
        "k's batch",
    ),
    "values of other positions": (arrays(v=np.zeros((2, 9, 2, 64), np.float16)), "TK-ATT-001", "v's shape"),
    "keys of another head dim": (arrays(k=np.zeros((2, 8, 2, 72), np.float16)), "TK-ATT-001", "k's head dim"),
    "elements apart": (arrays(q=np.zeros((2, 8, 4, 128), np.float16)[..., ::2]), "TK-ATT-002", "strides"),
    "strides of odd bytes": (arrays(q=np.zeros((2, 8, 4, 65), np.float16)[..., :64]), "TK-ATT-002", "multiples of 8"),
    "one position for all": (arrays(q=np.broadcast_to(Q[:, :1], Q.shape)), "TK-ATT-002", "0 but for that of positions"),
    "an output of one batch entry": (
        arrays(out=np.lib.stride_tricks.as_strided(Q.copy(), Q.shape, (0, *Q.strides[1:]))),
        "TK-ARRAY-009",
        "several elements share one place",
    ),
    "an empty window": (arrays(window=(-3, 2)), "TK-ATT-003", "left + right"),
    "half a window": (arrays(window=3), "TK-ATT-003", "window"),
    "a window of halves": (arrays(window=(1.5, 2)), "TK-ATT-003", "window"),
    "no scale": (arrays(scale=0.0), "TK-ATT-003", "scale"),
    "a scale that is none": (arrays(scale=float("nan")), "TK-ATT-003", "scale"),
    "a scale that f32 has not": (arrays(scale=1e-320), "TK-ATT-003", "nearest legal: 1.1"),
    "a cap beyond f32": (arrays(softcap=1e40), "TK-ATT-003", "nearest legal: 8.5"),
    "a number in words": (arrays(scale="one"), "TK-ATT-003", "a positive number"),
    "a window beyond 32 bits": (arrays(window=(1 << 31, None)), "TK-ATT-003", "1073741823, None"),
    "causal as an array": (arrays(causal=np.array([True, False])), "TK-ATT-003", "causal"),
    "a negative cap": (arrays(softcap=-1.0), "TK-ATT-003", "softcap"),
    "causal as a number": (arrays(causal=1), "TK-ATT-003", "causal"),
    "an output of another shape": (arrays(out=np.zeros((2, 8, 4, 72), np.float16)), "TK-ARRAY-008", "out"),
    "an output that is the queries": (arrays(out=Q), "TK-ARRAY-009", "overlaps q"),
    "logarithms of another type": (arrays(lse=np.zeros((2, 4, 8), np.float16)), "TK-ARRAY-008", "lse"),
    "logarithms that are strided": (
        arrays(lse=np.zeros((2, 4, 16), np.float32)[..., ::2]),
        "TK-ATT-002",
        "lse has strides",
    ),
    "a chip without the kernel": (arrays(target="sm_80"), "TK-ATT-005", "sm_90a"),
    "another chip's config": (arrays(target="sm_100a", config=tilekit.AttentionConfig()), "TK-ATT-005", "Blackwell"),
    "three tiles": (blackwell(tiles=3), "TK-ATT-006", "nearest: 2"),
    "more keys than a thread has registers for": (blackwell(keys=144), "TK-ATT-006", "nearest: 128"),
    "columns that there are not": (
        {**blackwell(keys=128), **wide(192)},
        "TK-ATT-006",
        "nearest: keys=64",
    ),
    "tiles that do not fit at all": ({**blackwell(keys=16), **wide(256)}, "TK-ATT-006", "nearest: tiles=1"),
    "stages that do not fit": ({**blackwell(stages=9), **wide(64)}, "TK-ATT-006", "nearest: stages=5"),
    "too much slack": (blackwell(slack=9), "TK-ATT-006", "nearest: 8"),
    "a polynomial of minus one": (blackwell(polynomial=-1), "TK-ATT-006", "nearest: 0"),
    "five warpgroups": (arrays(config=tilekit.AttentionConfig(warpgroups=5)), "TK-ATT-006", "nearest: 4"),
    "keys that are no multiple": (arrays(config=tilekit.AttentionConfig(keys=100)), "TK-ATT-006", "nearest: 96"),
    "too many keys": (arrays(config=tilekit.AttentionConfig(1, 256, 2)), "TK-ATT-006", "registers"),
    "too many stages": (arrays(config=tilekit.AttentionConfig(1, 128, 9)), "TK-ATT-006", "nearest: stages="),
    "three tiles of queries": (arrays(config=tilekit.AttentionConfig(query_stages=3)), "TK-ATT-006", "nearest: 2"),
    "queries that do not fit twice": (
        {**wide(256), "config": tilekit.AttentionConfig(2, 64, 1, query_stages=2)},
        "TK-ATT-006",
        "nearest: query_stages=1",
    ),
    "an output in one of two tiles of queries": (
        arrays(config=tilekit.AttentionConfig(own_output=False, query_stages=2)),
        "TK-ATT-006",
        "nearest: query_stages=1",
    ),
}


@pytest.mark.parametrize("which", BAD)
def test_bad_input_is_refused(which: str) -> None:
    """The error has its code, and names what was given and the nearest."""
    given, code, words = BAD[which]
    with pytest.raises(TilekitError, match=words.replace("(", r"\(").replace("+", r"\+")) as caught:
        tilekit.attention(**given)
    assert caught.value.code == code


def test_numbers_of_numpy_are_numbers() -> None:
    """A scale, a cap, bounds and a truth out of NumPy mean what Python's mean."""
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((1, 24, 2, 64)).astype(np.float16) for _ in "qkv")
    plain: dict[str, Any] = {"scale": 0.25, "softcap": 8.0, "window": (5, 2), "causal": True}
    numpys: dict[str, Any] = {
        "scale": np.float32(0.25), "softcap": np.int64(8), "window": (np.int32(5), np.int64(2)), "causal": np.True_,
    }  # fmt: skip
    np.testing.assert_array_equal(tilekit.attention(q, k, v, **numpys), tilekit.attention(q, k, v, **plain))


def test_extremes_of_scale_and_cap() -> None:
    """The least scale sees all keys alike, and a cap far below the scale leaves the signs of scores alone."""
    rng = np.random.default_rng(4)
    q, k, v = (rng.standard_normal((1, 16, 1, 64)).astype(np.float16) for _ in "qkv")
    mean = v.astype(np.float64).mean(1, keepdims=True)
    np.testing.assert_allclose(tilekit.attention(q, k, v, scale=2.0**-126), np.broadcast_to(mean, v.shape), 2e-3, 2e-3)
    np.testing.assert_allclose(
        tilekit.attention(q, k, v, scale=2.0**126, softcap=2.0**-126), np.broadcast_to(mean, v.shape), 2e-3, 2e-3
    )
