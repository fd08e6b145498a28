"""`tilekit.torch.attention`: eager, without memory, compiled, in the place of torch's own, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tilekit  # noqa: E402
import tilekit.torch  # noqa: E402
from tilekit.errors import ArgumentError  # noqa: E402

attention: Any = tilekit.torch.attention
ops: Any = torch.ops.tilekit
theirs: Any = torch.nn.functional.scaled_dot_product_attention


def operands(device: str = "cpu", queries: int = 20, keys: int = 33, groups: int = 1, seed: int = 0) -> tuple[Any, ...]:
    """Normal queries, keys and values of two heads, whose positions are farther apart than a head is long."""
    rng = torch.Generator().manual_seed(seed)

    def heads(count: int, length: int) -> Any:
        memory = torch.randn(2, length, count, 72, generator=rng).to(device, torch.bfloat16)
        return memory[..., :64].transpose(1, 2)

    return heads(2, queries), heads(groups, keys), heads(groups, keys)


def close(found: Any, q: Any, k: Any, v: Any, **how: Any) -> None:
    """Compare with torch's own in f32, to the rounding of weights and of the result."""
    exact = theirs(q.float(), k.float(), v.float(), enable_gqa=True, **how)
    torch.testing.assert_close(found.float(), exact, atol=0.03, rtol=0.02)


def test_eager(device: str) -> None:
    """Numbers and layout of a new result, of `out` in any memory, and of the logarithms."""
    q, k, v = operands(device)
    found = attention(q, k, v, scale=0.2)
    close(found, q, k, v, scale=0.2)
    assert found.shape == (2, 2, 20, 64)
    assert found.transpose(1, 2).is_contiguous()
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    assert attention(q, k, v, scale=0.2, out=out) is out
    torch.testing.assert_close(out, found, rtol=0, atol=0)
    again, lse = attention(q, k, v, scale=0.2, lse=True)
    torch.testing.assert_close(again, found, rtol=0, atol=0)
    scores = 0.2 * q.float() @ k.float().mT
    torch.testing.assert_close(lse, torch.logsumexp(scores, -1), atol=1e-3, rtol=1e-3)


def test_masks_are_those_of_the_call(device: str) -> None:
    """Causal and windows are aligned to the last query and key, as `tilekit.attention` has them."""
    q, k, v = operands(device, queries=20, keys=33)
    seen = torch.arange(33)[None] - torch.arange(20)[:, None] - 13
    for options, mask in (({"causal": True}, seen <= 0), ({"window": (4, 2)}, (seen <= 2) & (seen >= -4))):
        close(attention(q, k, v, **options), q, k, v, attn_mask=mask.to(device))


def test_operators_are_sound() -> None:
    """torch.library.opcheck finds nothing: schemas, fake results, autograd and AOT dispatch, with dynamic shapes."""
    q, k, v = operands()
    torch.library.opcheck(ops.attention.default, (q, k, v, True))
    torch.library.opcheck(ops.attention_lse.default, (q, k, v, False, 3, 2, 0.3, 20.0))
    torch.library.opcheck(ops.attention_out.default, (q, k, v), {"out": torch.empty_like(q)})


def test_a_paged_cache_is_the_same_eager_and_compiled(device: str) -> None:
    """Blocks through a table with a length each: as each sequence alone; opcheck and the compiler find nothing."""
    q, k, v = operands(device, queries=1, keys=48)
    table = torch.tensor([[4, 0, 2], [1, 5, -1]], dtype=torch.int32, device=device)
    lengths = torch.tensor([41, 32], dtype=torch.int32, device=device)
    caches = []
    for whole in (k, v):
        cache = torch.full((6, 16, 1, 64), float("nan"), device=device, dtype=q.dtype)
        for entry, (row, length) in enumerate(zip(table.tolist(), lengths.tolist(), strict=True)):
            for place in range(length):
                cache[row[place // 16], place % 16] = whole[entry, :, place]
        caches.append(cache.transpose(1, 2))
    found = attention(q, *caches, key_lengths=lengths, block_table=table)
    for entry, length in enumerate(lengths.tolist()):
        own = slice(entry, entry + 1)
        close(found[own], q[own], k[own, :, :length], v[own, :, :length])
    again = torch.compile(attention, backend="eager", fullgraph=True)(
        q, *caches, key_lengths=lengths, block_table=table
    )
    torch.testing.assert_close(again, found, rtol=0, atol=0)
    if device == "cpu":
        more = (False, None, None, None, None, lengths, table)
        tests = ("test_schema", "test_faketensor", "test_aot_dispatch_static")
        torch.library.opcheck(ops.attention.default, (q, *caches, *more), test_utils=tests)


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_whole(dynamic: bool) -> None:
    """torch.compile keeps it in one graph, of any number of positions, and the numbers are the eager ones."""

    def layer(q: Any, k: Any, v: Any) -> Any:
        return attention(q, k, v, causal=True) * 2

    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for length in (24, 31):
        given = operands(queries=length, keys=length)
        torch.testing.assert_close(compiled(*given), layer(*given), rtol=0, atol=0)


def test_in_place_of_torchs() -> None:
    """The function has torch's meaning, the first query and key aligned; the context reaches calls by any name."""
    for queries, keys in ((20, 33), (33, 20)):
        for causal in (False, True):
            q, k, v = operands(queries=queries, keys=keys, seed=queries)
            found = tilekit.torch.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
            close(found, q, k, v, is_causal=causal)
    given = operands(groups=2)
    ours = attention(*given)
    with tilekit.torch.sdpa(emulate=True):
        found = theirs(*given)
        assert torch.equal(torch.nn.functional.scaled_dot_product_attention(*given), found)
    assert torch.equal(found, ours)


def test_the_function_is_compiled_into_one_graph() -> None:
    """What goes where is decided while torch.compile traces, without a break."""
    given = operands(groups=2)

    def model(q: Any, k: Any, v: Any) -> Any:
        return tilekit.torch.scaled_dot_product_attention(q, k, v, is_causal=True) + 1

    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*given), model(*given), rtol=0, atol=0)


class LaunchedError(Exception):
    """A launch of tilekit's, seen."""


REST: dict[str, dict[str, Any]] = {
    "a mask": {"attn_mask": torch.ones(20, 33, dtype=torch.bool)},
    "another type": {"to": torch.float32},
    "a gradient": {"grad": True},
    "a head dim of 60": {"cut": 60},
    "no positions": {"cut_positions": 0},
    "elements apart": {"step": 2},
    "an address between two units": {"shift": 4},
    "elements that do not agree": {"groups": 1},
}


@pytest.mark.parametrize("which", REST)
def test_the_rest_is_torchs(which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What tilekit does not take goes to torch's function, and gives what that gives, its errors too."""

    def launched(*_: Any, **__: Any) -> Any:
        raise LaunchedError

    monkeypatch.setattr(tilekit, "attention", launched)
    how = dict(REST[which])
    given = list(operands(groups=how.pop("groups", 2)))
    if "to" in how:
        to = how.pop("to")
        given = [one.to(to) for one in given]
    if how.pop("grad", False):
        given[0] = given[0].detach().requires_grad_()
    if "cut" in how:
        cut = how.pop("cut")
        given = [one[..., :cut] for one in given]
    if "cut_positions" in how:
        how.pop("cut_positions")
        given[0] = given[0][:, :, :0]
    if "shift" in how:
        shift = how.pop("shift")
        given = [one[..., shift : shift + 56] for one in given]
    if "step" in how:
        given = [one[..., :: how["step"]] for one in given]
        how.pop("step")
    if which == "elements that do not agree":
        given[1] = given[1][:, :, :, :7]
        with pytest.raises(RuntimeError):
            theirs(*given, **how)
        with pytest.raises(RuntimeError):
            tilekit.torch.scaled_dot_product_attention(*given, **how)
        return
    found = tilekit.torch.scaled_dot_product_attention(*given, **how)
    torch.testing.assert_close(found, theirs(*given, **how), rtol=0, atol=0)


def test_what_it_takes_is_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    """The double of the test above sees a call that tilekit takes."""

    def launched(*_: Any, **__: Any) -> Any:
        raise LaunchedError

    monkeypatch.setattr(tilekit, "attention", launched)
    with pytest.raises(LaunchedError), torch.no_grad():
        tilekit.torch.scaled_dot_product_attention(*operands(groups=2))


def test_refused() -> None:
    """What the call refuses, also without memory; and gradients."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    q, k, v = operands()
    bad: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
        ((q[0], k, v), {}, "TK-ATT-001"),
        ((q, k[:, :, :9], v), {}, "TK-ATT-001"),
        ((q[..., ::2], k[..., ::2], v), {}, "TK-ATT-002"),
        ((q, k, v), {"window": (-3, 2)}, "TK-ATT-003"),
        ((q, k, v), {"scale": -1.0}, "TK-ATT-003"),
        ((q, k, v), {"out": torch.empty(2, 2, 20, 72, dtype=q.dtype)}, "TK-ARRAY-008"),
    ]
    for given, options, code in bad:
        with pytest.raises(ArgumentError, match=code):
            attention(*given, **options)
        with FakeTensorMode() as mode:
            fakes = {n: mode.from_tensor(x) if isinstance(x, torch.Tensor) else x for n, x in options.items()}
            tensors = [mode.from_tensor(one) for one in given]
            with pytest.raises(ArgumentError, match=code):
                attention(*tensors, **fakes)
    with pytest.raises(ArgumentError, match="TK-ATT-003"):
        attention(q, k, v, window=3)
    with pytest.raises(ArgumentError, match="TK-ATT-003"):
        attention(q, k, v, out=torch.empty_like(q), lse=True)
    with pytest.raises(ArgumentError, match=r"k requires a gradient.*TK-TORCH-001"):
        attention(q, k.detach().requires_grad_(), v)


def test_cpu_tensors_stay_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless they are to be emulated, a model on the CPU computes as before."""

    def never(*arguments: Any, **keywords: Any) -> None:
        raise AssertionError("not for tilekit")

    monkeypatch.setattr(tilekit, "attention", never)
    q = torch.randn(1, 2, 8, 64, dtype=torch.bfloat16)
    with tilekit.torch.sdpa():
        found = torch.nn.functional.scaled_dot_product_attention(q, q, q)
    assert torch.equal(found, torch.nn.functional.scaled_dot_product_attention(q, q, q))
