"""Attention on the emulator: against float64, by places that can be told apart, with what must not be touched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tilekit
from tests.attention.cases import Case, expected, generated, worst
from tests.attention.checks import MOST_UNITS, check, check_on_gpu
from tilekit.kernels.attention.arguments import AttentionArguments
from tilekit.kernels.attention.compiled import chosen
from tilekit.kernels.attention.sm_100a.config import BlackwellAttentionConfig

TARGETS = ["sm_90a", "sm_100a"]


def sampled(cases: Any, every: int) -> list[Any]:
    """Pairs of a target and each case; on sm_100a those that are no multiple of `every` are for breadth."""
    pairs = [("sm_90a", case) for case in cases]
    marks = [() if place % every == 0 else (pytest.mark.breadth,) for place in range(len(pairs))]
    return [
        *pairs,
        *(pytest.param("sm_100a", case, marks=mark) for (_, case), mark in zip(pairs, marks, strict=True)),
    ]


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize(("target", "number"), sampled(range(12), 12))
def test_generated_calls_are_those_of_float64(target: str, number: int) -> None:
    """Head dims, ratios of heads, ragged lengths, masks and caps at random."""
    check(generated(12, seed=19, longest=150)[number], seed=number, target=target)


@pytest.mark.gpu
def test_generated_calls_on_a_gpu_are_those_of_float64() -> None:
    """Four hundred of them, into poisoned outputs."""
    check_on_gpu(generated(400, seed=23, longest=700))


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize(("target", "elements"), sampled([64, 96, 128, 192, 256], 5))
@pytest.mark.parametrize("causal", [False, True])
def test_a_query_that_knows_one_key_gets_its_value(target: str, elements: int, causal: bool) -> None:
    """Each query is a large multiple of the key it points at, and values say where they lie: not a bit is lost."""
    random = np.random.default_rng(elements)
    keys, queries, heads = 150, 130, 2
    codes = np.where(random.random((1, keys, heads, elements)) < 0.5, -1.0, 1.0)
    pointed = random.permutation(keys)[:queries]
    if causal:
        pointed = np.minimum(pointed, np.arange(queries) + keys - queries)
    q, k = (8.0 * codes[:, pointed]).astype(np.float16), codes.astype(np.float16)
    v = np.broadcast_to(np.arange(keys, dtype=np.float16)[None, :, None, None], codes.shape).copy()
    v[..., 1::2] = np.arange(heads, dtype=np.float16)[:, None]
    out = tilekit.attention(q, k, v, causal=causal, scale=4.0, target=target)
    np.testing.assert_array_equal(out[0, :, :, 0], np.repeat(pointed[:, None], heads, 1))
    np.testing.assert_array_equal(out[0, :, :, 1], np.broadcast_to(np.arange(heads), (queries, heads)))


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.breadth) for seed in range(1, 20))])
@pytest.mark.parametrize("tiles", [1, 2])
def test_blackwell_ctas_that_take_several_tiles_get_each_right(seed: int, tiles: int) -> None:
    """Two CTAs for several unequal tiles, under several interleavings; one of the tiles has a single block."""
    config = BlackwellAttentionConfig(tiles=tiles, keys=32, stages=2)
    case = Case(1, 300, 90, 2, 1, 64, 64, "bf16", {"causal": True})
    check(case, config=config, seed=seed, target="sm_100a", multiprocessors=2)


@dataclass(frozen=True)
class Rising(Case):
    """Scores that rise from key to key towards the first by `rise`, from `level` on."""

    rise: float = 0.0
    level: float = 0.0

    def arrays(self, seed: int = 0) -> tuple[Any, Any, Any]:
        """A score is 8 times a key's first element, by 1 / 8, beside what the other elements make."""
        q, k, v = super().arrays(seed)
        q[..., 0] = 8.0
        k[..., 0] = (self.level + self.rise * np.arange(self.keys)[::-1])[:, None]
        return q, k, v


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"window": (70, 20)}])
@pytest.mark.parametrize("group", [1, 4])
@pytest.mark.parametrize(
    ("rise", "level"),
    [(0.05, 0), (0.5, 0), (-0.5, 0), (0, -100), (0, 100)],
    ids=["some", "much", "falls", "low", "high"],
)
def test_maxima_may_rise_from_block_to_block(rise: float, level: float, group: int, options: dict[str, Any]) -> None:
    """Scores that rise from key to key towards the first, which comes last, by less than the slack or far more.

    And scores far from 0, which a row's first weights must not be computed without having seen.
    """
    case = Rising(1, 8 if group > 1 else 150, 190, group, 1, 64, 64, "f16", options, rise=rise, level=level)
    config = tilekit.AttentionConfig(1 if group > 1 else 2, 32, turns=group == 1)
    check(case, config=config, seed=7, multiprocessors=3)


@pytest.mark.parametrize("choices", [{"polynomial": 0}, {"polynomial": 1}, {"slack": 0}, {"keys": 48, "stages": 1}])
def test_blackwell_configs_compute_the_same(choices: dict[str, int]) -> None:
    """Exponentials by MUFU alone or by multiplications alone, sums rescaled at every maximum, a ring of one stage."""
    config = BlackwellAttentionConfig(**{"tiles": 1, "keys": 32, **choices})
    check(Case(1, 100, 150, 1, 1, 64, 64, "f16"), config=config, target="sm_100a")


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.breadth) for seed in range(1, 20))])
def test_blackwell_shares_of_keys_add_up(seed: int) -> None:
    """Few queries of grouped heads, whose keys several CTAs share: the parts are added in order."""
    case = Case(1, 5, 500, 8, 2, 64, 64, "bf16", {"causal": True})
    check(case, seed=seed, target="sm_100a", multiprocessors=6)


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize("memory", [{}, {"own_output": False}, {"query_stages": 2}])
@pytest.mark.parametrize("seed", range(4))
def test_ctas_that_take_several_tiles_get_each_right(seed: int, memory: dict[str, Any]) -> None:
    """Three CTAs for a dozen unequal tiles, under several interleavings, queries and outputs in memory as may be."""
    config = tilekit.AttentionConfig(warpgroups=2, keys=32, **memory)
    case = Case(1, 300, 200, 4, 2, 64, 64, "bf16", {"causal": True})
    check(case, config=config, seed=seed, multiprocessors=3)


@pytest.mark.parametrize("seed", range(2))
def test_ctas_that_take_several_equal_tiles_get_each_right(seed: int) -> None:
    """Two CTAs for five tiles without a mask, the next one's queries loaded ahead; blocks end within a tile."""
    config = tilekit.AttentionConfig(warpgroups=3, keys=48, query_stages=2)
    check(Case(1, 300, 130, 3, 1, 64, 64, "f16"), config=config, seed=seed, multiprocessors=2)


@pytest.mark.parametrize(("heads", "kv_heads"), [(5, 5), (9, 3)])
def test_the_last_section_of_heads_may_be_smaller(heads: int, kv_heads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles in sections of two heads of keys, of which the last has fewer: each tile is computed, at its place."""
    monkeypatch.setattr("tilekit.tile_schedule.heads.L2_BYTES", 2 * 200 * 2 * 64 * 2)
    config = tilekit.AttentionConfig(warpgroups=1, keys=64)
    check(Case(1, 200, 200, heads, kv_heads, 64, 64, "bf16", {"causal": True}), config=config, multiprocessors=3)


@pytest.mark.parametrize(("keys", "tiles"), [(64, 1), (4096, 16), (16384, 43), (131072, 64)])
def test_shares_are_worth_their_parts(keys: int, tiles: int) -> None:
    """One query of eight heads over one: as many CTAs as have more to do than the parts that they leave cost."""
    q, k = np.zeros((1, 1, 8, 8), np.float16), np.zeros((1, keys, 1, 8), np.float16)
    arguments = AttentionArguments.parse(q, k, np.zeros((1, keys, 1, 128), np.float16))
    call = arguments.call({}, 132, None)
    assert chosen(arguments, None).schedule(call).tiles == tiles


@pytest.mark.parametrize(("queries", "warpgroups"), [(256, 4), (384, 3), (1024, 4), (1280, 3), (4096, 3)])
def test_four_warpgroups_where_fewer_rows_are_for_nothing(queries: int, warpgroups: int) -> None:
    """Heads of 64 without a mask take tiles of 256 queries where those fit the queries better than tiles of 192."""
    q = np.zeros((1, queries, 1, 64), np.float16)
    assert tilekit.attention_kernel_for(q, q, q).config.warpgroups == warpgroups
    assert tilekit.attention_kernel_for(q, q, q, window=(50, None)).config.warpgroups == 3


@pytest.mark.parametrize("warpgroups", [1, 2, 3, 4])
@pytest.mark.parametrize("turns", [True, False])
def test_warpgroups_with_and_without_turns(warpgroups: int, turns: bool) -> None:
    """One to four warpgroups, in turns or as they come, compute the same."""
    config = tilekit.AttentionConfig(warpgroups=warpgroups, keys=48, turns=turns)
    check(Case(1, 300, 250, 1, 1, 64, 64), config=config)


@pytest.mark.parametrize("target", TARGETS)
def test_rows_without_a_key_are_zero(target: str) -> None:
    """More queries than keys under a causal mask, and no keys at all: 0, and minus infinity for their logarithms."""
    random = np.random.default_rng(1)
    q = random.standard_normal((1, 90, 1, 64)).astype(np.float16)
    k = random.standard_normal((1, 30, 1, 64)).astype(np.float16)
    out, lse = tilekit.attention(q, k, k, causal=True, lse=True, target=target)
    assert (out[0, :60] == 0).all()
    assert np.isneginf(lse[0, 0, :60]).all()
    assert (out[0, 60:] != 0).any(axis=-1).all()
    assert np.isfinite(lse[0, 0, 60:]).all()
    out, lse = tilekit.attention(q, k[:, :0], k[:, :0], lse=True, target=target)
    assert (out == 0).all()
    assert np.isneginf(lse).all()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", [(2, 37, 4, 2), (1, 1, 8, 1), (1, 200, 2, 2)], ids=str)
def test_no_keys_of_several_heads(target: str, shape: tuple[int, int, int, int]) -> None:
    """Nothing is read where keys would lie, whatever strides the empty arrays have; queries may be no numbers."""
    batch, queries, heads, kv_heads = shape
    q = np.full((batch, queries, heads, 64), np.nan, np.float16)
    k = np.zeros((batch, 3, kv_heads, 129), np.float16)[:, :0, :, 1:65]
    out, lse = tilekit.attention(q, k, np.zeros((batch, 0, kv_heads, 128), np.float16), lse=True, target=target)
    assert (out == 0).all()
    assert np.isneginf(lse).all()


def test_no_queries_are_no_launch() -> None:
    """An output without elements comes back as it is."""
    k = np.zeros((1, 5, 1, 64), np.float16)
    assert tilekit.attention(k[:, :0], k, k).shape == (1, 0, 1, 64)


@pytest.mark.parametrize("target", TARGETS)
def test_arrays_lie_anywhere_and_nothing_else_is_written(target: str) -> None:
    """Heads before positions in memory, and an output within a larger array whose other elements stay."""
    random = np.random.default_rng(2)
    q, k, v = (random.standard_normal((2, 3, 70, 64)).astype(np.float16).transpose(0, 2, 1, 3) for _ in range(3))
    whole = np.full((2, 90, 5, 80), 7.0, np.float16)
    out = whole[:, 11:81, 1:4, 8:72]
    assert tilekit.attention(q, k, v, out=out, target=target) is out
    reference, _ = expected(q, k, v)
    assert worst(out, reference, v, "f16") < MOST_UNITS
    out[...] = 7.0
    assert (whole == 7.0).all()


def test_a_kernel_says_what_it_is() -> None:
    """`attention_kernel_for` returns what a call launches, with its text and roles."""
    q = np.zeros((1, 4, 2, 128), np.float16)
    kernel = tilekit.attention_kernel_for(q, q, q, causal=True)
    assert "role mma" in kernel.explain()
    assert ".entry attention_f16_d128_right" in kernel.ptx


def test_a_blackwell_kernel_draws_its_tensor_memory() -> None:
    """`explain` has a bar of the columns, and the regions by name."""
    q = np.zeros((1, 300, 2, 96), np.float16)
    words = tilekit.attention_kernel_for(q, q, q, target="sm_100a").explain()
    assert f"tensor memory  |{'A' * 32}{'B' * 24}{'.' * 8}|  448 of 512 columns" in words
    assert "     256  192 columns  B: sums" in words
