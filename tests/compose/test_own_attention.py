"""Attention with a component of yours: a block-diagonal mask and biases by distance, on both chips; mistakes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import pytest

import tilekit
import tilekit.compose as tk
from tests.attention.cases import Case, worst
from tilekit.errors import TilekitError

CHIPS = ("sm_90a", "sm_100a")
U32, F32 = tk.registers.U32, tk.registers.F32
DOCUMENT = 50


def same_document(w: tk.Writer, score: tk.Value, query: tk.Value, key: tk.Value, head: tk.Value) -> tk.Value:
    """Hide keys of other documents, of so many positions each."""
    same = query.retyped(U32) // DOCUMENT == key.retyped(U32) // DOCUMENT
    return w.select(same, score, -inf, F32)


def alibi(w: tk.Writer, score: tk.Value, query: tk.Value, key: tk.Value, head: tk.Value) -> tk.Value:
    """Take from a score its distance times 2^-2, 2^-4, ... of the first head, the second, ..."""
    slope = w.ptx.softmax.exp2(x=w.ptx.convert.float_u32(whole=head + 1) * -2.0)
    return score + slope * w.ptx.convert.float_s32(whole=key - query)


def kernel_of(chip: str, change: Any, **spec: Any) -> tk.ComposedAttention:
    """The kernel with changed scores."""

    def own(w: tk.Writer, made: Any) -> Any:
        return replace(made, range=tk.ChangedScores(made.range, change))

    return tk.attention_kernel(tilekit.AttentionSpec(tk.F16, 64, 64, **spec), target=chip)(own)


def expected(q: Any, k: Any, v: Any, change: Any, *, causal: bool) -> Any:
    """The same in float64."""
    group, n, keys = q.shape[2] // k.shape[2], q.shape[1], k.shape[1]
    k, v = (np.repeat(x, group, 2).astype(np.float64) for x in (k, v))
    scores = np.einsum("bqhd,bkhd->bhqk", q.astype(np.float64), k)
    query, key = np.arange(n)[:, None], np.arange(keys)[None]
    if change is same_document:
        scores = np.where(query // DOCUMENT == key // DOCUMENT, scores, -np.inf)
    else:
        slopes = 2.0 ** (-2 * (np.arange(q.shape[2]) + 1))
        scores = scores + slopes[None, :, None, None] * (key - query)
    if causal:
        scores = np.where(key <= query + keys - n, scores, -np.inf)
    most = scores.max(-1, keepdims=True)
    weights = np.exp((scores - np.where(np.isinf(most), 0, most)) / 8)
    total = weights.sum(-1, keepdims=True)
    return np.einsum("bhqk,bkhd->bqhd", weights / np.where(total > 0, total, 1), v)


@pytest.mark.parametrize(
    ("queries", "keys", "spec", "change", "chip"),
    [
        (70, 130, {}, same_document, "sm_90a"),
        (70, 60, {"right": True}, alibi, "sm_100a"),
        *(
            pytest.param(*case, change, chip, marks=pytest.mark.breadth)
            for case in ((170, 90, {"right": True}), (130, 130, {}), (3, 200, {"group": 2}))
            for change in (same_document, alibi)
            for chip in CHIPS
        ),
    ],
)
def test_scores_of_ones_own(
    queries: int, keys: int, spec: dict[str, Any], change: Callable[..., Any], chip: str
) -> None:
    """One component is swapped; masks of the family, shared keys and rows without a key stay right."""
    kernel = kernel_of(chip, change, **spec)
    q, k, v = Case(1, queries, keys, 2, 1, 64, 64, "f16").arrays(3)
    causal = bool(spec.get("right"))
    plan: Any = kernel.bind(q, k, v, causal=causal)
    assert worst(plan(), expected(q, k, v, change, causal=causal), v, "f16") < 1.5
    assert plan.report.findings == ()


def test_it_is_a_kernel_as_any() -> None:
    """It has a name, text and words, checks itself and is called with arrays; what is not swapped leaves the text."""
    kernel = kernel_of("sm_90a", same_document)
    q, k, v = Case(1, 70, 70, 2, 1, 64, 64, "f16").arrays(3)
    assert kernel.name == "own"
    assert "ChangedScores" in kernel.ptx or "same_document" in kernel.ptx
    assert "role mma" in kernel.explain()
    assert (kernel(q, k, v) == kernel.bind(q, k, v)()).all()
    assert len(kernel.check(q, k, v, seeds=(1, 2))) == 2
    with pytest.raises(TilekitError, match="right is True"):
        kernel(q, k, v, causal=True)
    usual = tilekit.compile(tilekit.AttentionSpec(tk.F16, 64, 64))

    @tk.attention_kernel(tilekit.AttentionSpec(tk.F16, 64, 64), target="sm_90a")
    def attention_f16_d64(w: tk.Writer, made: tk.Attention) -> tk.Attention:
        return made

    bare = [[line.split("//")[0] for line in text.splitlines()] for text in (attention_f16_d64.ptx, usual.ptx)]
    assert bare[0] == bare[1]


def test_other_components_are_swapped_too() -> None:
    """Another softmax, another range of keys and no turns, each alone, leave a right kernel."""
    q, k, v = Case(1, 100, 100, 2, 1, 64, 64, "f16").arrays(3)
    right = tilekit.attention(q, k, v)

    def exact(w: tk.Writer, made: tk.Attention) -> tk.Attention:
        return replace(made, softmax=tk.OnlineSoftmax(w, made.softmax.factor))

    def loose(w: tk.Writer, made: tk.Attention) -> tk.Attention:
        return replace(made, turns=tk.NoTurns())

    for change in (exact, loose):
        kernel = tk.attention_kernel(tilekit.AttentionSpec(tk.F16, 64, 64), target="sm_90a")(change)
        assert np.abs(kernel(q, k, v).astype(np.float32) - right.astype(np.float32)).max() < 2e-3


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: tk.attention_kernel(tilekit.MatmulSpec(), target="sm_90a"), "an AttentionSpec"),
        (lambda: tk.attention_kernel(tilekit.AttentionSpec(), target="sm_80"), "TK-ATT-005"),
        (lambda: tk.attention_kernel(tilekit.AttentionSpec(), target="sm_9"), "sm_90a"),
        (
            lambda: tk.attention_kernel(tilekit.AttentionSpec(), target="sm_100a", config=tilekit.AttentionConfig()),
            "BlackwellAttentionConfig",
        ),
        (lambda: tk.attention_kernel(tilekit.AttentionSpec(), target="sm_90a")(lambda w, made: made), "with a name"),
        (lambda: _own(lambda w, made: None), "returned None"),
        (lambda: _own(lambda w, made: replace(made, softmax=made.range)), "softmax"),
        (lambda: _own(lambda w, made: replace(made, scores=object())), "scores"),
        (lambda: kernel_of("sm_90a", lambda w, score, query, key, head: key), "an f32 value"),
        (lambda: kernel_of("sm_90a", lambda w, score, query, key, head: 1.0), "an f32 value"),
    ],
)
def test_mistakes(make: Callable[[], Any], words: str) -> None:
    """What is no spec, chip, config, function, driver, component or score is refused when the kernel is made."""
    with pytest.raises(TilekitError, match=words):
        make()


def _own(change: Any) -> Any:
    def own(w: tk.Writer, made: Any) -> Any:
        return change(w, made)

    return tk.attention_kernel(tilekit.AttentionSpec(), target="sm_90a")(own)
