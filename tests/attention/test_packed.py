"""Attention of packed sequences on the emulator: each beside float64 of its own queries and keys."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import tilekit
from tests.attention.checks import check, check_on_gpu
from tests.attention.packed import PackedCase, generated_packed
from tilekit.errors import ArgumentError
from tilekit.kernels.attention.arguments import AttentionArguments
from tilekit.kernels.attention.compiled import chosen
from tilekit.kernels.attention.config import AttentionConfig
from tilekit.kernels.attention.sm_100a.config import BlackwellAttentionConfig

TARGETS = ("sm_90a", "sm_100a")


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "number", [*range(4), *(pytest.param(number, marks=pytest.mark.breadth) for number in range(4, 40))]
)
def test_generated_sequences_are_those_of_float64(target: str, number: int) -> None:
    """Lengths, head dims, ratios of heads, masks and caps at random."""
    check(generated_packed(40, seed=11, longest=200)[number], seed=number, target=target)


@pytest.mark.gpu
def test_generated_sequences_on_a_gpu_are_those_of_float64() -> None:
    """Two hundred of them."""
    check_on_gpu(generated_packed(200, seed=6, longest=900))


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.breadth) for seed in range(1, 20))])
@pytest.mark.parametrize("target", TARGETS)
def test_ctas_that_take_tiles_of_several_sequences_get_each_right(target: str, seed: int) -> None:
    """Three CTAs for the tiles of six sequences, two of them empty, under several interleavings."""
    case = PackedCase((70, 0, 129, 1, 0, 200), (70, 40, 100, 1, 0, 200), 2, 1, 64, 64, options={"causal": True})
    config = AttentionConfig(2, 32, ahead=False) if target == "sm_90a" else BlackwellAttentionConfig(1, 32)
    check(case, target=target, config=config, seed=seed, multiprocessors=3)


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize(
    "memory", [{"own_output": False}, {"query_stages": 2}, {"warpgroups": 1}, {"warpgroups": 3}, {"claims": False}]
)
def test_configs_compute_the_same(memory: dict[str, Any]) -> None:
    """Outputs in the memory of queries, two tiles of queries, one warpgroup or three, tiles that are not claimed."""
    config = AttentionConfig(**{"warpgroups": 2, "keys": 32, "ahead": False, **memory})
    check(PackedCase((100, 64, 65, 30), (100, 64, 65, 30), 2, 2, 64, 64, "f16"), config=config, multiprocessors=2)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("heads", "kv_heads"), [(5, 5), pytest.param(9, 3, marks=pytest.mark.breadth)])
def test_sections_of_heads(heads: int, kv_heads: int, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys of two heads, of one, of less than one and of all fit in a section, of which the last may have fewer."""
    monkeypatch.setattr("tilekit.tile_schedule.packed_heads.L2_BYTES", 70 * 2 * 2 * 64 * 2)
    lengths = 70, 131, 149, 20
    config = AttentionConfig(1, 64, ahead=False) if target == "sm_90a" else BlackwellAttentionConfig(1, 64)
    case = PackedCase(lengths, lengths, heads, kv_heads, 64, 64, options={"causal": True})
    check(case, target=target, config=config, multiprocessors=5)


@pytest.mark.parametrize("target", TARGETS)
def test_more_ctas_than_tiles(target: str) -> None:
    """How many tiles there are is not known at the launch: CTAs without one leave. One sequence has no keys."""
    case = PackedCase((100, 30, 20), (60, 149, 0), 2, 1, 64, 64, options={"causal": True})
    check(case, target=target, multiprocessors=20)


@pytest.mark.parametrize("target", TARGETS)
def test_sequences_do_not_see_each_other(target: str) -> None:
    """Values say whose they are, and what belongs to another sequence is no number."""
    lengths = (3, 130, 1, 66)
    starts = np.cumsum([0, *lengths]).astype(np.int32)
    for whose, (first, end) in enumerate(pairwise(starts)):
        q, k = (np.full((starts[-1], 1, 64), np.nan, np.float16) for _ in "qk")
        v = np.full((starts[-1], 1, 64), np.nan, np.float16)
        q[first:end], k[first:end] = 0, 1
        v[first:end] = np.arange(end - first)[:, None, None]
        out = tilekit.attention(q, k, v, lengths=starts, target=target)
        mean = np.float16((end - first - 1) / 2)
        np.testing.assert_array_equal(out[first:end], np.full_like(out[first:end], mean), err_msg=str(whose))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "held", [[2**31 - 1, -500, 20, 7, 90], [-1, -1, -1, -1, -1], [0, 200, 10, 300, 64], [10, 20, 20, 40, 50]]
)
def test_what_the_device_holds_is_clamped(target: str, held: list[int]) -> None:
    """Starts beyond everything and falling ones, written after the checks: nothing is read or written out of bounds."""
    q, kv = (np.ones((positions, heads, 64), np.float16) for positions, heads in ((64, 2), (90, 1)))
    starts, keys = np.array([0, 10, 30, 50, 64], np.int32), np.array([0, 10, 30, 50, 90], np.int32)
    out = np.full((64, 2, 64), np.nan, np.float16)
    arguments = AttentionArguments.parse(q, kv, kv, lengths=(starts, keys), out=out, target=target)
    plan = chosen(arguments, None).plan(arguments)
    starts[:], keys[:] = held, held[::-1]
    plan()
    assert (np.isnan(out) | (out == 1.0) | (out == 0.0)).all()
    expected = np.full((64, 2), False)
    first = min(held[0], 64) if held[0] > 0 else 0
    for start in held[1:]:
        end = max(first, min(start, 64)) if start > 0 else first
        expected[first:end] = True
        first = end
    np.testing.assert_array_equal(~np.isnan(out[:, :, 0]), expected)


def test_strides_and_a_single_array_of_lengths() -> None:
    """Heads ahead of positions in memory, and results where they are asked for."""
    case = PackedCase((40, 30), (40, 30), 4, 2, 64, 64, "f16")
    given, _ = case.call()
    expected = tilekit.attention(**given)
    turned = {name: np.ascontiguousarray(given[name].swapaxes(0, 1)).swapaxes(0, 1) for name in "qkv"}
    out = np.empty((4, 70, 64), np.float16).swapaxes(0, 1)
    assert tilekit.attention(**{**given, **turned}, out=out) is out
    np.testing.assert_array_equal(out, expected)


def test_a_batch_without_positions() -> None:
    """Nothing is launched, and shapes are right."""
    empty = np.zeros((0, 2, 64), np.float16)
    out, lse = tilekit.attention(empty, empty, empty, lengths=np.zeros(3, np.int32), lse=True)
    assert (out.shape, lse.shape) == ((0, 2, 64), (2, 0))


GOOD = np.array([0, 10, 30], np.int32)
BAD: dict[str, tuple[dict[str, Any], str, str]] = {
    "of 64 bits": ({"lengths": GOOD.astype(np.int64)}, "lengths's type.*int64.*nearest legal: 'int32'", "TK-ATT-008"),
    "no array": ({"lengths": 30}, "lengths", "TK-ARRAY-001"),
    "three arrays": ({"lengths": (GOOD, GOOD, GOOD)}, "3 arrays.*one array, or two", "TK-ATT-008"),
    "a square": ({"lengths": np.zeros((2, 2), np.int32)}, r"lengths's shape.*\(B \+ 1,\)", "TK-ATT-008"),
    "one number": ({"lengths": np.zeros(1, np.int32)}, r"lengths's shape", "TK-ATT-008"),
    "apart": ({"lengths": np.zeros(6, np.int32)[::2]}, "lengths's stride", "TK-ATT-008"),
    "falling": ({"lengths": np.array([0, 20, 10, 30], np.int32)}, r"lengths\[2\].*10.*nearest legal: 20", "TK-ATT-008"),
    "a late begin": ({"lengths": np.array([1, 30], np.int32)}, r"lengths\[0\].*nearest legal: 0", "TK-ATT-008"),
    "an early end": (
        {"lengths": np.array([0, 10, 29], np.int32)},
        r"lengths\[2\].*29.*nearest legal: 30",
        "TK-ATT-008",
    ),
    "a late end": ({"lengths": np.array([0, 31], np.int32)}, r"lengths\[1\].*31.*30, the positions of q", "TK-ATT-008"),
    "other counts": ({"lengths": (GOOD, np.array([0, 30], np.int32))}, r"lengths\[1\]'s shape", "TK-ATT-008"),
    "falling keys": ({"lengths": (GOOD, np.array([0, 40, 30], np.int32))}, r"lengths\[1\]\[2\]", "TK-ATT-008"),
    "one array of two": (
        {"k": np.zeros((9, 1, 64), np.float16), "v": np.zeros((9, 1, 64), np.float16)},
        "two",
        "TK-ATT-008",
    ),
    "a batch": ({"q": np.zeros((1, 30, 2, 64), np.float16)}, "three dimensions", "TK-ATT-001"),
    "no lengths": ({"lengths": None}, "four dimensions", "TK-ATT-001"),
    "a cache": ({"key_lengths": GOOD}, "key_lengths.*None with lengths", "TK-ATT-008"),
    "values of another length": ({"v": np.zeros((31, 1, 64), np.float16)}, r"v's shape.*\(31, 1, 64\)", "TK-ATT-001"),
    "an output of another shape": ({"out": np.zeros((30, 2, 32), np.float16)}, "out", "TK-ARRAY-008"),
    "an output that overlaps": ({"out": "q"}, "overlaps", "TK-ARRAY-009"),
    "logarithms of another shape": ({"lse": np.zeros((30, 2), np.float32)}, r"\(2, 30\)", "TK-ARRAY-008"),
}


@pytest.mark.parametrize("which", BAD)
def test_bad_lengths_are_refused(which: str) -> None:
    """The error has its code, and names what was given and what is legal."""
    good = {
        "q": np.zeros((30, 2, 64), np.float16),
        "k": np.zeros((30, 1, 64), np.float16),
        "v": np.zeros((30, 1, 64), np.float16),
        "lengths": GOOD,
    }
    changed, words, code = BAD[which]
    given = {**good, **changed}
    if isinstance(given.get("out"), str):
        given["out"] = given[given["out"]]
    with pytest.raises(ArgumentError, match=words) as caught:
        tilekit.attention(**given)
    assert caught.value.code == code
