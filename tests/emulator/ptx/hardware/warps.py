"""Instructions in which the lanes of a warp meet: shuffles, votes, matches, reductions, elections."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from tests.emulator.ptx.hardware.cases import Case, elementwise


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
            f"{{{{ .reg .pred in_range; shfl.sync.{mode}.b32 {{d}}|in_range, {{a}}, {{b}}, {clamp}, 0xffffffff; "
            "selp.b32 {d}, {d}, 0x5eed, in_range; }}",
            *("b32", "b32", "u32"),
            label=f"shfl {mode} predicate",
            clean=_lanes,
        )
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
        "{{ .reg .b32 m; vote.sync.ballot.b32 m, {b}, 0xffffffff; mov.b32 {d}, 0; "
        "@{b} shfl.sync.bfly.b32 {d}, {a}, 1, 31, m; }}",
        *("b32", "b32", "pred"),
        label="shfl among the lanes of a ballot",
        clean=_pairs,
    )
    yield make(
        "{{ mov.b32 {d}, {a}; @{b} bra skip; redux.sync.add.u32 {d}, {a}, 0x0f0f0f0f; skip: }}", "b32", "b32", "pred",
        label="redux in a divergent branch", clean=_nibbles,
    )  # fmt: skip
    yield make(
        "{{ .reg .b32 i; mov.b32 {d}, 0; and.b32 i, {a}, 15; again: add.u32 {d}, {d}, i; sub.u32 i, i, 1; "
        "setp.gt.s32 {b}, i, 0; @{b} bra again; }}",
        *("b32", "b32", "pred"),
        label="loop with a different count in each lane",
    )
    yield from _partial()
    yield from _whole()


def _partial() -> Iterator[Case]:
    """Some lanes take part, in a branch of their own; the others keep what they have."""
    make = partial(elementwise, "warp")

    def among(mask: int, text: str, out: str, *ins: str, label: str, clean: Any = None) -> Case:
        start = "setp.ne.u32 {d}, 0, 0;" if out == "pred" else "mov.b32 {d}, 0x5eed;"
        body = (
            "{{ .reg .b32 lane; .reg .pred outside; mov.u32 lane, %laneid; "
            f"shr.u32 lane, {mask:#x}, lane; and.b32 lane, lane, 1; setp.eq.u32 outside, lane, 0; "
            f"{start} @outside bra done; {text} done: }}}}"
        )
        return make(body, out, *ins, label=f"{label} among {mask:#x}", clean=clean)

    for mask in (0x0000FFFF, 0xFF00FF00, 0x0F0F0F0F, 0x80000001):
        for mode in ("all", "any", "uni"):
            yield among(mask, f"vote.sync.{mode}.pred {{d}}, {{a}}, {mask:#x};", "pred", "pred", label=f"vote {mode}")
        ballot = f"vote.sync.ballot.b32 {{d}}, {{a}}, {mask:#x};"
        yield among(mask, ballot, "b32", "pred", label="vote ballot")
        matching = f"match.any.sync.b32 {{d}}, {{a}}, {mask:#x};"
        yield among(mask, matching, "b32", "b32", label="match any", clean=_few)
        for op in ("add.u32", "min.s32", "max.u32", "xor.b32"):
            yield among(mask, f"redux.sync.{op} {{d}}, {{a}}, {mask:#x};", "b32", "b32", label=f"redux {op}")
        elected = f"{{{{ .reg .pred p; elect.sync {{d}}|p, {mask:#x}; selp.b32 {{d}}, {{d}}, 99, p; }}}}"
        yield among(mask, elected, "b32", "b32", label="elect")
    for mode in ("bfly", "idx", "up", "down"):
        step = {"bfly": "1", "idx": "4", "up": "1", "down": "2"}[mode]
        bound = (28 << 8) | (0 if mode == "up" else 31)
        text = f"shfl.sync.{mode}.b32 {{d}}, {{a}}, {step}, {bound}, 0x0f0f0f0f;"
        yield among(0x0F0F0F0F, text.replace(", 4,", ", 2,"), "b32", "b32", label=f"shfl {mode} in fours")


def _whole() -> Iterator[Case]:
    """Combinations of lanes that the plain cases leave out."""
    make = partial(elementwise, "warp")
    for mode in ("all", "any", "uni"):
        yield make(f"vote.sync.{mode}.pred {{d}}, !{{a}}, 0xffffffff;", "pred", "pred", label=f"vote {mode} negated")
        flags = f"vote.sync.{mode}.pred {{d}}, {{a}}, 0xffffffff;"
        yield make(flags, "pred", "pred", label=f"vote {mode} of equal warps", clean=_same_in_warp)
    same = "match.all.sync.b64 {d}|same, {a}, 0xffffffff; selp.b32 {d}, {d}, 7, same;"
    yield make(f"{{{{ .reg .pred same; {same} }}}}", "b32", "b64", label="match all 64", clean=_one)
    for mode in ("idx", "up", "down", "bfly"):
        for width in (2, 16):
            bound = ((32 - width) << 8) | (0 if mode == "up" else width - 1)
            text = f"shfl.sync.{mode}.b32 {{d}}, {{a}}, {{b}}, {bound}, 0xffffffff;"
            yield make(text, "b32", "b32", "u32", label=f"shfl {mode} width {width}", clean=_lanes)
        text = f"shfl.sync.{mode}.b32 {{d}}, {{a}}, {{b}}, {{c}}, 0xffffffff;"
        yield make(text, "b32", "b32", "u32", "u32", label=f"shfl {mode} with a bound of each lane", clean=_bounds)
    steps = " ".join(
        f"shfl.sync.down.b32 other, {{d}}, {step}, 31, 0xffffffff; add.s32 {{d}}, {{d}}, other;"
        for step in (16, 8, 4, 2, 1)
    )
    yield make(f"{{{{ .reg .b32 other; mov.b32 {{d}}, {{a}}; {steps} }}}}", "s32", "s32", label="sum by shuffles")
    for register in ("laneid", "ntid.x", "ntid.y", "nctaid.x", "tid.y"):
        text = f"{{{{ mov.u32 {{d}}, %{register}; xor.b32 {{d}}, {{d}}, {{a}}; }}}}"
        yield make(text, "b32", "b32", label=f"register {register}")


def _same_in_warp(flag: np.ndarray) -> tuple[np.ndarray, ...]:
    return (np.repeat(flag[::32], 32),)


def _bounds(value: np.ndarray, lane: np.ndarray, bound: np.ndarray) -> tuple[np.ndarray, ...]:
    """Bounds and segments of every width, as in the instruction's description."""
    width = 1 << (bound % 6).astype(np.uint32)
    return value, lane % 40, ((32 - width) << 8 | (bound >> 8) % 32).astype(np.uint32)


def _lanes(value: np.ndarray, lane: np.ndarray) -> tuple[np.ndarray, ...]:
    return value, lane % 40


def _few(value: np.ndarray) -> tuple[np.ndarray, ...]:
    return (value % 5,)


def _one(value: np.ndarray) -> tuple[np.ndarray, ...]:
    index = np.arange(value.size) // 32
    return (np.where(index % 2 == 0, index.astype(value.dtype), value),)


def _pairs(value: np.ndarray, flag: np.ndarray) -> tuple[np.ndarray, ...]:
    """Both lanes of a pair take part, or neither."""
    return value, np.repeat(flag[::2], 2)


def _nibbles(value: np.ndarray, flag: np.ndarray) -> tuple[np.ndarray, ...]:
    lane = np.arange(value.size) % 32
    return value, np.where((0x0F0F0F0F >> lane) & 1, 0xFFFFFFFF, 0).astype(np.uint32)
