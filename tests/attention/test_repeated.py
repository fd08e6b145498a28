"""Attention of arrays that repeat one batch entry or one head, with a stride of 0, beside float64 of whole arrays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import tilekit
from tests.attention.caches import CacheCase
from tests.attention.cases import Case, expected, generated, largest_errors, worst
from tests.attention.checks import check
from tilekit.errors import ArgumentError

TARGETS = ("sm_90a", "sm_100a")
AXES = {"batch": 0, "head": 2}

BATCH, HEAD, BOTH = ("batch",), ("head",), ("batch", "head")
REPEATED: dict[str, dict[str, tuple[str, ...]]] = {
    "keys and values of one batch entry": {"k": BATCH, "v": BATCH},
    "keys of one head": {"k": HEAD},
    "values of one head and entry": {"v": BOTH},
    "keys and values of one head": {"k": HEAD, "v": HEAD},
    "queries of one batch entry": {"q": BATCH},
    "queries of one head and entry": {"q": BOTH},
    "everything": {"q": BOTH, "k": BOTH, "v": BOTH},
}
BY_DEFAULT = "keys and values of one batch entry"
MANY, FEW = Case(2, 70, 90, 4, 2, 64, 72, "f16", {"causal": True}), Case(2, 5, 300, 4, 2, 64, 64, "f16")


def repeat(array: Any, axes: tuple[str, ...]) -> Any:
    """The first entries of these axes in the place of all, amid memory that is no number."""
    place = tuple(AXES[axis] for axis in axes)
    kept = tuple(slice(0, 1) if axis in place else slice(None) for axis in range(4))
    memory = np.full([3 if axis in place else extent for axis, extent in enumerate(array.shape)], np.nan, array.dtype)
    middle = tuple(slice(1, 2) if axis in place else slice(None) for axis in range(4))
    memory[middle] = array[kept]
    return np.broadcast_to(memory[middle], array.shape)


@dataclass(frozen=True)
class RepeatedCase(Case):
    """A case whose arrays, by name, repeat the first entry of some axes."""

    axes: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, case: Case, axes: dict[str, tuple[str, ...]]) -> RepeatedCase:
        """A case, and what repeats of it."""
        return cls(**vars(case), axes=axes)

    def arrays(self, seed: int = 0) -> tuple[Any, Any, Any]:
        """Operands without memory of their own for what repeats."""
        q, k, v = (
            repeat(array, self.axes.get(name, ())) for name, array in zip("qkv", super().arrays(seed), strict=True)
        )
        return q, k, v


def every_way() -> list[Any]:
    """Ways to repeat, with few queries and many, for both chips: all that repeats at once, the rest for breadth."""
    ways = [(which, case, target) for which in REPEATED for case in (MANY, FEW) for target in TARGETS]
    marks = [() if way[0] in ("everything", BY_DEFAULT) and way[1] is MANY else pytest.mark.breadth for way in ways]
    return [
        pytest.param(*way, marks=mark, id=f"{way[0]}-{'many' if way[1] is MANY else 'few'}-{way[2]}")
        for way, mark in zip(ways, marks, strict=True)
    ]


@pytest.mark.parametrize(("which", "case", "target"), every_way())
def test_one_entry_stands_for_all(which: str, case: Case, target: str) -> None:
    """Whatever repeats, whether heads share a tile or not: the result is that of arrays that hold every entry."""
    check(RepeatedCase.of(case, REPEATED[which]), target=target)


@pytest.mark.breadth
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("seed", range(20))
def test_generated_calls_that_repeat(seed: int, target: str) -> None:
    """Head dims, masks and ratios of heads at random, whose arrays repeat at random, each in its own interleaving."""
    random = np.random.default_rng(seed)
    case = generated(1, seed=1000 + seed, longest=150)[0]
    axes = {name: tuple(axis for axis in AXES if random.random() < 0.5) for name in "qkv"}
    check(RepeatedCase.of(case, axes), target=target, seed=seed, multiprocessors=4)


@pytest.mark.parametrize("target", ["sm_90a", pytest.param("sm_100a", marks=pytest.mark.breadth)])
@pytest.mark.parametrize(("page", "axes"), [(0, BATCH), (0, BOTH), (16, HEAD)])
def test_caches_that_repeat(page: int, axes: tuple[str, ...], target: str) -> None:
    """Entries of one cache with lengths of their own, and keys of one head in blocks of a table.

    What is behind the longest is no number.
    """
    case = CacheCase((33, 33), page, 5, 4, 2, 64, "f16", {"causal": True})
    given, alone = case.call()
    keys = repeat(given["k"], axes)
    values = repeat(given["v"], axes) if page == 0 else given["v"]
    lengths = np.array([33, 18], np.int32)
    out, lse = case.outputs()
    out, lse = tilekit.attention(
        **{**given, "k": keys, "v": values, "key_lengths": lengths}, out=out, lse=lse, target=target, causal=True
    )
    entries = []
    for entry, n in enumerate(lengths):
        own = 0 if "batch" in axes else entry
        head = [0, 0] if "head" in axes else [0, 1]
        _, k, v = alone[own]
        entries.append((given["q"][entry], k[:n, head], v[:n, head] if page == 0 else v[:n]))
    error, wrong = largest_errors(case, entries, out, lse)
    assert error < 4.0
    assert wrong < 1e-4


def test_one_head_of_keys_and_values_is_shared() -> None:
    """Queries of all heads are rows of one tile, as where k and v have a single head; of k alone they are not."""
    q, k, v = RepeatedCase.of(FEW, {"k": HEAD, "v": HEAD}).arrays()
    single = tilekit.attention_kernel_for(q, k[:, :, :1], v[:, :, :1])
    assert tilekit.attention_kernel_for(q, k, v) is single
    assert "group4" in single.name
    assert tilekit.attention_kernel_for(*RepeatedCase.of(FEW, {"k": HEAD}).arrays()).name.endswith("group2_k_one_head")


def test_a_kernel_takes_what_it_was_built_for() -> None:
    """One that loads each batch entry refuses an array that repeats the first."""
    q, k, v = FEW.arrays()
    kernel = tilekit.attention_kernel_for(q, k, v, target="sm_90a")
    with pytest.raises(ArgumentError, match="repeated") as caught:
        kernel.bind(*RepeatedCase.of(FEW, {"k": BATCH}).arrays())
    assert caught.value.code == "TK-ATT-011"


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_tensors_that_are_expanded(device: str) -> None:
    """Torch's `expand` of batch and heads goes through the operator, and in the place of torch's function, uncopied."""
    torch = pytest.importorskip("torch")
    import tilekit.torch as doors

    rng = torch.Generator().manual_seed(3)
    q = torch.randn(2, 4, 30, 64, generator=rng).to(device, torch.bfloat16)
    k = torch.randn(1, 1, 40, 64, generator=rng).to(device, torch.bfloat16).expand(2, 4, 40, 64)
    v = torch.randn(1, 4, 40, 64, generator=rng).to(device, torch.bfloat16).expand(2, 4, 40, 64)
    exact = torch.nn.functional.scaled_dot_product_attention(q.float(), k.float(), v.float())
    found = doors.attention(q, k, v)
    torch.testing.assert_close(found.float(), exact, atol=0.03, rtol=0.02)
    assert torch.equal(doors.scaled_dot_product_attention(q, k, v), found)
    whole = doors.attention(q, k.contiguous(), v.contiguous())
    torch.testing.assert_close(found, whole, rtol=0, atol=0)


@pytest.mark.gpu
def test_generated_calls_that_repeat_on_a_gpu() -> None:
    """A hundred of them, into poisoned outputs."""
    torch = pytest.importorskip("torch")
    for seed, case in enumerate(generated(100, seed=77, longest=700)):
        random = np.random.default_rng(seed)
        kind = torch.bfloat16 if case.dtype == "bf16" else torch.float16
        given, whole = [], []
        for array in case.arrays(seed):
            tensor = torch.from_numpy(array.astype(np.float32)).cuda().to(kind)
            cut = [1 if axis in (0, 2) and random.random() < 0.5 else extent for axis, extent in enumerate(array.shape)]
            given.append(tensor[: cut[0], :, : cut[2]].expand(tensor.shape))
            whole.append(np.broadcast_to(array[: cut[0], :, : cut[2]], array.shape))
        out = torch.full((*given[0].shape[:3], given[2].shape[3]), float("nan"), dtype=kind, device="cuda")
        tilekit.attention(*given, out=out, **case.options)
        reference, _ = expected(*whole, **case.options)
        result = out.float().cpu().numpy()
        assert not np.isnan(result).any(), case
        assert worst(result, reference, whole[2], case.dtype) < 4.0, case
