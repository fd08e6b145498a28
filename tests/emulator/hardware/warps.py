"""Instructions in which the lanes of a warp meet: shuffles, votes, matches, reductions, elections."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from tests.emulator.hardware.cases import Case, elementwise


def cases() -> Iterator[Case]:
    """Every warp case."""
    make = partial(elementwise, "warp")
    for mode, clamp in (("idx", 31), ("up", 0), ("down", 31), ("bfly", 31)):
        yield make(
            f"shfl.sync.{mode}.b32 {{d}}, {{a}}, {{b}}, {clamp}, 0xffffffff;",
            "b32",
            "b32",
            "u32",
            label=f"shfl {mode}",
            clean=_lanes,
        )
        segmented = clamp | (24 << 8)
        yield make(
            f"shfl.sync.{mode}.b32 {{d}}, {{a}}, {{b}}, {segmented}, 0xffffffff;",
            "b32",
            "b32",
            "u32",
            label=f"shfl {mode} width 8",
            clean=_lanes,
        )
        yield make(
            f"{{{{ .reg .pred in_range; shfl.sync.{mode}.b32 {{d}}|in_range, {{a}}, {{b}}, {clamp}, 0xffffffff; selp.b32 {{d}}, {{d}}, 0x5eed, in_range; }}}}",
            "b32", "b32", "u32", label=f"shfl {mode} predicate", clean=_lanes,
        )  # fmt: skip
    for mode in ("all", "any", "uni"):
        yield make(f"vote.sync.{mode}.pred {{d}}, {{a}}, 0xffffffff;", "pred", "pred", label=f"vote {mode}")
    yield make("vote.sync.ballot.b32 {d}, {a}, 0xffffffff;", "b32", "pred", label="vote ballot")
    yield make("vote.sync.ballot.b32 {d}, !{a}, 0xffffffff;", "b32", "pred", label="vote ballot of the negation")
    yield make("match.any.sync.b32 {d}, {a}, 0xffffffff;", "b32", "b32", label="match any", clean=_few)
    yield make("match.any.sync.b64 {d}, {a}, 0xffffffff;", "b32", "b64", label="match any 64", clean=_few)
    yield make(
        "{{ .reg .pred same; match.all.sync.b32 {d}|same, {a}, 0xffffffff; selp.b32 {d}, {d}, 7, same; }}",
        "b32",
        "b32",
        label="match all",
        clean=_one,
    )
    for t, ops in (("u32", ("add", "min", "max")), ("s32", ("add", "min", "max")), ("b32", ("and", "or", "xor"))):
        for op in ops:
            yield make(f"redux.sync.{op}.{t} {{d}}, {{a}}, 0xffffffff;", t, t, label=f"redux {op}.{t}")
    yield make(
        "{{ .reg .pred p; elect.sync {d}|p, 0xffffffff; selp.b32 {d}, {d}, 99, p; }}", "b32", "b32", label="elect"
    )
    yield make("{{ activemask.b32 {d}; xor.b32 {d}, {d}, {a}; }}", "b32", "b32", label="activemask")
    for name in ("lt", "le", "gt", "ge", "eq"):
        yield make(
            f"{{{{ mov.u32 {{d}}, %lanemask_{name}; xor.b32 {{d}}, {{d}}, {{a}}; }}}}",
            "b32",
            "b32",
            label=f"lanemask {name}",
        )
    # Divergence: only some lanes take part.
    yield make(
        "{{ .reg .b32 m; vote.sync.ballot.b32 m, {b}, 0xffffffff; mov.b32 {d}, 0; @{b} shfl.sync.bfly.b32 {d}, {a}, 1, 31, m; }}",
        "b32", "b32", "pred", label="shfl among the lanes of a ballot", clean=_pairs,
    )  # fmt: skip
    yield make(
        "{{ mov.b32 {d}, {a}; @{b} bra skip; redux.sync.add.u32 {d}, {a}, 0x0f0f0f0f; skip: }}", "b32", "b32", "pred",
        label="redux in a divergent branch", clean=_nibbles,
    )  # fmt: skip
    yield make(
        "{{ .reg .b32 i; mov.b32 {d}, 0; and.b32 i, {a}, 15; again: add.u32 {d}, {d}, i; sub.u32 i, i, 1; setp.gt.s32 {b}, i, 0; @{b} bra again; }}",
        "b32", "b32", "pred", label="loop with a different count in each lane",
    )  # fmt: skip


def _lanes(value: np.ndarray, lane: np.ndarray) -> tuple[np.ndarray, ...]:
    return value, lane % 40


def _few(value: np.ndarray) -> tuple[np.ndarray, ...]:
    return (value % 5,)


def _one(value: np.ndarray) -> tuple[np.ndarray, ...]:
    index = np.arange(value.size) // 32
    return (np.where(index % 2 == 0, index, value).astype(value.dtype),)


def _pairs(value: np.ndarray, flag: np.ndarray) -> tuple[np.ndarray, ...]:
    """Both lanes of a pair take part, or neither."""
    return value, np.repeat(flag[::2], 2)


def _nibbles(value: np.ndarray, flag: np.ndarray) -> tuple[np.ndarray, ...]:
    lane = np.arange(value.size) % 32
    return value, np.where((0x0F0F0F0F >> lane) & 1, 0xFFFFFFFF, 0).astype(np.uint32)
