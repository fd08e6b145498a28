"""Attention's kernel objects: they bind to arrays, check themselves, and are those of any other family."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilekit
from tests.attention.cases import Case, expected, worst
from tilekit.dtypes import F16
from tilekit.errors import ArgumentError, ConfigError
from tilekit.kernels.assembled import ArrayKernel
from tilekit.kernels.attention.choices import AttentionChoices
from tilekit.kernels.attention.config import AttentionConfig
from tilekit.kernels.attention.spec import AttentionSpec
from tilekit.kernels.family_kernel import FamilyKernel
from tilekit.targets import target

CHIPS = ("sm_90a", "sm_100a")
SMALL = AttentionSpec(F16, 64, 64, right=True, lse=True)


def arrays(queries: int = 40, keys: int = 70) -> tuple[Any, Any, Any]:
    """Two heads that share keys."""
    return Case(1, queries, keys, 2, 1, 64, 64, "f16").arrays(7)


@pytest.mark.parametrize("chip", [pytest.param("sm_90a", marks=pytest.mark.breadth), "sm_100a"])
def test_a_kernel_binds_to_arrays_and_checks_itself(chip: Any) -> None:
    """Its results are right, the logarithms come along, and no order of warps changes a bit."""
    q, k, v = arrays()
    kernel = tilekit.compile(SMALL, chip)
    plan = kernel.bind(q, k, v, causal=True, seed=3)
    out, logs = plan()
    right, right_logs = expected(q, k, v, causal=True)
    assert worst(out, right, v, "f16") < 1.5
    np.testing.assert_allclose(logs, right_logs, atol=2e-3)
    given = np.zeros_like(out)
    assert kernel.bind(q, k, v, causal=True, out=given, lse=np.zeros_like(logs))()[0] is given
    assert (given == out).all()
    reports = kernel.check(q, k, v, causal=True, seeds=(5, 6))
    assert [report.findings for report in reports] == [(), ()]
    assert "role load" in kernel.explain()
    assert kernel.ptx is kernel.assembly


def test_few_queries_need_not_share_a_tile() -> None:
    """A kernel of heads that have their own tiles takes one query; one whose heads share a tile refuses many."""
    q, k, v = arrays(queries=1)
    own, shared = (tilekit.compile(AttentionSpec(F16, 64, 64, group=group)) for group in (0, 2))
    right, _ = expected(q, k, v)
    for kernel in (own, shared):
        assert worst(kernel.bind(q, k, v)(), right, v, "f16") < 1.5
    with pytest.raises(ArgumentError, match="group is 0, but attention_f16_d64_group2 was built for 2"):
        shared.bind(*arrays(queries=90))


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({}, "right is False"),
        ({"causal": True, "softcap": 3.0}, "softcap is True"),
        ({"causal": True, "window": (3, None)}, "left is True"),
        ({"causal": True, "device": "hip"}, "device: given 'hip'"),
        ({"causal": True, "scale": -1.0}, "scale"),
    ],
)
def test_what_a_kernel_was_not_built_for(keywords: dict[str, Any], words: str) -> None:
    """The error says what differs."""
    with pytest.raises(ArgumentError, match=words):
        tilekit.compile(SMALL).bind(*arrays(), **keywords)


def test_unknown_words_of_bind() -> None:
    """A keyword that there is not, and a config, which the kernel has already, are Python's own errors."""
    kernel = tilekit.compile(SMALL)
    for word in ("casual", "config", "target"):
        with pytest.raises(TypeError, match=word):
            kernel.bind(*arrays(), **{word: None})
    bf16 = Case(1, 40, 70, 2, 1, 64, 64, "bf16").arrays(7)
    with pytest.raises(ArgumentError, match="dtype is bf16"):
        kernel.bind(*bf16, causal=True)


def test_arrays_that_the_emulator_does_not_run() -> None:
    """Of an empty batch there is nothing to check; its outputs are empty too."""
    empty = tuple(array[:0] for array in arrays())
    assert [one.shape for one in tilekit.attention(*empty, causal=True, lse=True)] == [(0, 40, 2, 64), (0, 2, 40)]
    with pytest.raises(ArgumentError, match="TK-COMP-003"):
        tilekit.compile(SMALL).check(*empty, causal=True)


def test_kernels_of_all_families_are_of_one_kind() -> None:
    """What `compile` returns has one protocol, of products as of attention; a product checks itself too."""
    a, b = np.ones((20, 64), np.float16), np.ones((64, 24), np.float16)
    product = tilekit.kernel_for(a, b)
    for kernel in (product, tilekit.compile(SMALL)):
        assert isinstance(kernel, FamilyKernel)
        assert isinstance(kernel, ArrayKernel)
    assert len(product.check(a, b, seeds=(1, 2, 3))) == 3


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(
    "spec",
    [AttentionSpec(), AttentionSpec(F16, 256, 256, left=True), AttentionSpec(head_dim=192, group=8), SMALL],
    ids=lambda spec: spec.name,
)
def test_what_tuning_tries(chip: Any, spec: AttentionSpec) -> None:
    """Candidates are legal, each once, the picker's choice first; variants differ from their config in one choice."""
    choices, place = AttentionChoices(), target(chip)
    found = choices.ranked(spec, place, m=4096)
    more = choices.ranked(spec, place, m=4096, tuning=True)
    assert found[0] == tilekit.compile(spec, chip).config
    assert len({*found, *more}) == len(found) + len(more)
    beside = choices.variants(found[0], spec, place)
    assert beside
    for config in (*found, *more, *beside):
        assert config.legal(place, spec)
        assert choices.config(vars(config), place) == config
    for config in beside:
        assert sum(vars(config)[name] != value for name, value in vars(found[0]).items()) == 1
    assert choices.plain(AttentionSpec(lse=True)) == choices.plain(AttentionSpec())


def test_illegal_configs_are_not_legal() -> None:
    """Too many stages break a rule, whichever way they are asked about."""
    config, place = AttentionConfig(stages=20), target("sm_90a")
    assert not config.legal(place, AttentionSpec())
    with pytest.raises(ConfigError):
        config.check(AttentionSpec(), place)
