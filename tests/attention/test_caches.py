"""Attention over caches on the emulator: lengths of batch entries and blocks through a table, beside float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilekit
from tests.attention.caches import CacheCase, generated_caches
from tests.attention.checks import check, check_on_gpu
from tilekit.errors import ArgumentError
from tilekit.kernels.attention.arguments import AttentionArguments
from tilekit.kernels.attention.compiled import chosen

TARGETS = ("sm_90a", "sm_100a")


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "number", [0, 1, *(pytest.param(number, marks=pytest.mark.breadth) for number in range(2, 40))]
)
def test_generated_caches_are_those_of_float64(target: str, number: int) -> None:
    """Lengths, blocks, head dims, masks at random; what is not in use is no number, tables end in ids of no block."""
    check(generated_caches(40, seed=7, longest=260)[number], seed=number, target=target)


@pytest.mark.gpu
def test_generated_caches_on_a_gpu_are_those_of_float64() -> None:
    """Two hundred of them."""
    check_on_gpu(generated_caches(200, seed=5, longest=900))


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.breadth) for seed in range(1, 20))])
@pytest.mark.parametrize("target", TARGETS)
def test_shares_of_a_paged_cache_add_up_to_the_same_bits(target: str, seed: int) -> None:
    """Keys of grouped heads shared among CTAs, under several interleavings: the bits do not depend on them."""
    case = CacheCase((300, 17), 16, 2, 4, 2, 64, options={"causal": True})
    given, _ = case.call(0)
    out = check(case, target=target, multiprocessors=7)
    other, _ = case.outputs()
    arguments = AttentionArguments.parse(**given, out=other, target=target, causal=True)
    chosen(arguments, None).plan(arguments, seed=seed + 50, multiprocessors=7)()
    np.testing.assert_array_equal(out.view(np.uint16), other.view(np.uint16))


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("page", [0, 16, 256])
@pytest.mark.parametrize("length", [1, 7, 127, 128, 129])
def test_ends_at_and_beside_a_tile(page: int, length: int) -> None:
    """The last key in use is the first, an odd one, or the last of a tile, or the first of the next."""
    check(CacheCase((length, 200), page, 1, 2, 1, 96, "f16"))


@pytest.mark.parametrize(("elements", "page"), [(128, 8), (96, 24), (256, 48)])
def test_many_boxes_are_within_the_registers_of_the_load_role(elements: int, page: int) -> None:
    """A stage of many boxes, for tiles of many queries: ptxas does not spill, and the result is right."""
    pytest.importorskip("nvidia.cu13", reason="ptxas comes with the package")
    case = CacheCase((elements, 45), page, 65, 1, 1, elements)
    given, _ = case.call()
    assert tilekit.attention_kernel_for(**given, target="sm_90a").resources.spill_store_bytes == 0
    check(case)


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("page", [8, 24, pytest.param(40, marks=pytest.mark.breadth)])
def test_many_queries_over_small_blocks(target: str, page: int) -> None:
    """A tile's keys lie in 16 blocks and more: the load role has registers for the places of a few."""
    case = CacheCase((300, 129), page, 150, 2, 1, 96)
    check(case, target=target)
    given, _ = case.call()
    arguments = AttentionArguments.parse(**given, target=target)
    used = chosen(arguments, None).resources
    assert (used.spill_store_bytes, used.spill_load_bytes, used.stack_bytes) == (0, 0, 0)


@pytest.mark.parametrize("target", TARGETS)
def test_what_the_device_holds_is_clamped(target: str) -> None:
    """Lengths and ids beyond everything, written after the checks: nothing is read out of bounds."""
    case = CacheCase((40, 30), 16, 1, 2, 1, 64)
    given, _ = case.call()
    for name in "kv":
        given[name][...] = 1.0
    out, _ = case.outputs()
    arguments = AttentionArguments.parse(**given, out=out, target=target)
    plan = chosen(arguments, None).plan(arguments)
    given["key_lengths"][:] = [2**31 - 1, -500]
    given["block_table"][:] = [[-1, 2**31 - 1, 10**6]] * 2
    plan()
    assert (out[0] == 1.0).all()
    assert (out[1] == 0.0).all()


def test_a_table_may_be_columns_of_a_larger_one() -> None:
    """Rows of the table may lie apart."""
    case = CacheCase((40, 30), 16, 1, 2, 1, 64)
    given, _ = case.call()
    expected = tilekit.attention(**given)
    wide = np.full((2, 9), -1, np.int32)
    wide[:, :3] = given["block_table"]
    np.testing.assert_array_equal(tilekit.attention(**{**given, "block_table": wide[:, :3]}), expected)


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "a table alone": ({"key_lengths": None}, "key_lengths"),
    "lengths of 64 bits": ({"key_lengths": np.zeros(2, np.int64)}, "key_lengths's type.*int64.*nearest legal: 'int32'"),
    "lengths of another batch": ({"key_lengths": np.zeros(3, np.int32)}, r"key_lengths's shape.*\(2,\)"),
    "lengths apart": ({"key_lengths": np.zeros(4, np.int32)[::2]}, "stride"),
    "a length beyond the table": ({"key_lengths": np.array([3, 49], np.int32)}, r"key_lengths\[1\].*48"),
    "a length below 0": ({"key_lengths": np.array([-1, 4], np.int32)}, r"key_lengths\[0\].*nearest legal: 0"),
    "a table of floats": ({"block_table": np.zeros((2, 3), np.float32)}, "block_table's type"),
    "a table of another batch": ({"block_table": np.zeros((1, 3), np.int32)}, "block_table's shape"),
    "a table without columns": ({"block_table": np.zeros((2, 0), np.int32)}, "block_table's columns"),
    "columns apart": ({"block_table": np.zeros((2, 6), np.int32)[:, ::2]}, "stride of columns"),
    "rows backwards": ({"block_table": np.zeros((2, 3), np.int32)[::-1]}, "stride of rows"),
    "an entry outside": ({"block_table": np.array([[0, 1, 2], [3, 9, 0]], np.int32)}, r"block_table\[1, 1\].*0 to 8"),
    "blocks of 12": (dict.fromkeys("kv", np.zeros((9, 12, 1, 64), np.float16)), "nearest legal: 16"),
    "no blocks": (dict.fromkeys("kv", np.zeros((0, 16, 1, 64), np.float16)), "k's blocks"),
}


@pytest.mark.parametrize("which", BAD)
def test_bad_caches_are_refused(which: str) -> None:
    """The error has its code, and names what was given and what is legal."""
    cache = np.zeros((9, 16, 1, 64), np.float16)
    good = {
        "q": np.zeros((2, 1, 2, 64), np.float16),
        "k": cache,
        "v": cache,
        "key_lengths": np.array([3, 20], np.int32),
        "block_table": np.zeros((2, 3), np.int32),
    }
    changed, words = BAD[which]
    with pytest.raises(ArgumentError, match=words) as caught:
        tilekit.attention(**{**good, **changed})
    assert caught.value.code == "TK-ATT-007"
