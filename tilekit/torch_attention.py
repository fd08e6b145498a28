"""`tilekit.attention` as a torch operator, and in the place of torch's own; `tilekit.torch` has both.

Tensors are (B, H, S, D), as torch has them, and are read where they lie: the kernel takes any strides of heads and
positions. Results lie as (B, S, H, D), which is how the projection behind attention reads them. There are no
gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import torch
from torch.overrides import TorchFunctionMode

import tilekit
from tilekit.annotations import Accepts
from tilekit.arrays import ArrayView, has_tangent, view_of_fake
from tilekit.errors import ArgumentError
from tilekit.kernels.attention.arguments import NUMBERS, ScoreKeywords, result_of
from tilekit.kernels.attention.spec import HEAD_DIMS
from tilekit.tile_io.tma import TMA_ALIGNMENT
from tilekit.torch_arguments import read_values, require_tensors

__all__ = ["attention", "scaled_dot_product_attention", "sdpa"]

_compiler: Any = torch.compiler
_registry: Any = torch.library
_ops: Any = torch.ops.tilekit
_torch_sdpa: Any = torch.nn.functional.scaled_dot_product_attention

_CAPABILITIES = ((9, 0), (10, 0))
"""Of GPUs that the kernel is built for."""


class AttentionKeywords(ScoreKeywords, total=False):
    """What is no tensor of a call."""

    lse: Annotated[bool, Accepts("True or False", "TK-ATT-003")]


_NAMES = ("causal", "left", "right", "scale", "softcap", "key_lengths", "block_table")


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    window: tuple[int | None, int | None] | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    key_lengths: torch.Tensor | None = None,
    block_table: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    lse: bool = False,
) -> Any:
    """Return ``softmax(scale * q @ kᵀ) @ v`` of each head, for torch's compilers.

    Parameters
    ----------
    q, k, v : torch.Tensor
        (B, H, Sq, D), (B, Hk, Sk, D) and (B, Hk, Sk, Dv), with the elements of a head behind each other.
    causal, window, scale, softcap
        As for `tilekit.attention`: masks are aligned to the last query and key.
    key_lengths, block_table : torch.Tensor, optional
        As for `tilekit.attention`; with a table k and v are (blocks, Hk, block size, D): transposes of caches whose
        positions come before their heads in memory.
    out : torch.Tensor, optional
        Where to write, (B, H, Sq, Dv); without `lse`.
    lse : bool
        Whether to return ``(out, lse)``, with the logarithms of the sums of exponentials, (B, H, Sq) f32.

    Returns
    -------
    torch.Tensor
        (B, H, Sq, Dv), the transpose of a C-contiguous (B, Sq, H, Dv); `out` itself if that was given.

    Raises
    ------
    ArgumentError
        As `tilekit.attention` does, for tensors without memory too. ``TK-TORCH-001`` where a gradient is asked for.
    """
    require_tensors({"q": q, "k": k, "v": v}, {"key_lengths": key_lengths, "block_table": block_table, "out": out})
    given = read_values(AttentionKeywords, causal=causal, window=window, scale=scale, softcap=softcap, lse=lse)
    sides = sides_of(given["window"])
    more = (given["causal"], *sides, given["scale"], given["softcap"], key_lengths, block_table)
    if given["lse"]:
        if out is not None:
            raise ArgumentError.of("out", "a tensor", legal="None with lse=True", nearest=None, code="TK-ATT-003")
        return _ops.attention_lse(q, k, v, *more)
    if out is None:
        return _ops.attention(q, k, v, *more)
    _ops.attention_out(q, k, v, *more, out=out)
    return out


def sides_of(window: Any) -> tuple[Any, Any]:
    """The left and the right number of a window (``TK-ATT-003`` for what is none)."""
    if window is not None and (not isinstance(window, tuple | list) or len(window) != 2):
        legal = "None, or (left, right): keys before and after the diagonal that are seen, whole numbers or None"
        raise ArgumentError.of("window", window, legal=legal, nearest=(None, None), code="TK-ATT-003")
    left, right = window or (None, None)
    return left, right


def scaled_dot_product_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Compute what `torch.nn.functional.scaled_dot_product_attention` does, by tilekit where it can.

    Parameters
    ----------
    query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa
        Torch's, with torch's meaning: the mask of `is_causal` is aligned to the first query and key. A mask that is a
        tensor, dropout, gradients and tangents, one position in the place of all, other types, layouts and chips than
        `tilekit.attention` takes, and tensors without elements go to torch's function.

    Returns
    -------
    torch.Tensor
        (B, H, Sq, Dv).
    """
    if isinstance(is_causal, bool) and _takes(query, key, value, attn_mask, dropout_p, scale, enable_gqa):
        # The diagonal begins at the first key, where tilekit's ends at the last.
        right = query.shape[2] - key.shape[2] if is_causal else None
        result: torch.Tensor = _ops.attention(query, key, value, False, None, right, scale, None)
        return result
    other: torch.Tensor = _torch_sdpa(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )
    return other


def _takes(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None,
    dropout_p: float,
    scale: float | None,
    enable_gqa: bool,
) -> bool:
    """Whether tilekit computes a call: what a compiler can decide, too."""
    tensors = (query, key, value)
    if not all(isinstance(one, torch.Tensor) for one in tensors) or not isinstance(scale, float | int | None):
        return False  # torch says what is wrong
    if attn_mask is not None or not isinstance(dropout_p, float | int) or dropout_p:
        return False
    if scale is not None and not NUMBERS[0] <= scale <= NUMBERS[1]:
        return False
    if torch.is_grad_enabled() and any(one.requires_grad for one in tensors):
        return False
    if not _compiler.is_dynamo_compiling() and any(map(has_tangent, tensors)):
        return False
    if any(one.dim() != 4 or one.dtype != query.dtype or one.device != query.device for one in tensors):
        return False
    if query.dtype not in (torch.bfloat16, torch.float16) or query.device.type not in ("cpu", "cuda"):
        return False
    if query.device.type == "cuda" and torch.cuda.get_device_capability(query.device) not in _CAPABILITIES:
        return False
    heads, groups = query.shape[1], key.shape[1]
    if any(extent == 0 for one in tensors for extent in one.shape) or heads % groups:
        return False
    fit = key.shape[:3] == value.shape[:3] and query.shape[0] == key.shape[0] and query.shape[3] == key.shape[3]
    return bool(fit and (heads == groups or enable_gqa) and all(_lies_well(one) for one in tensors))


def _lies_well(tensor: torch.Tensor) -> bool:
    """Whether the copy engine can read a tensor of heads where it lies."""
    unit, elements = TMA_ALIGNMENT // 2, tensor.shape[3]
    if elements % 8 or elements > HEAD_DIMS[-1] or tensor.stride(3) != 1:
        return False
    # A compiler knows no address: the operator refuses one that is no multiple.
    if not _compiler.is_compiling() and tensor.data_ptr() % TMA_ALIGNMENT:
        return False
    if tensor.shape[2] > 1 and tensor.stride(2) == 0:
        return False  # of batch and heads all may be the first, but positions lie behind each other
    return all(tensor.stride(axis) % unit == 0 for axis in range(3) if tensor.shape[axis] > 1)


class _Instead(TorchFunctionMode):  # type: ignore[misc]  # torch is absent where this is checked
    """While it is on, this thread's calls of torch's function are ours, by whatever name they were imported."""

    def __init__(self, emulate: bool) -> None:
        super().__init__()
        self._emulate = emulate

    def __torch_function__(
        self, func: Any, types: Any, args: Iterable[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        if func is _torch_sdpa and (self._emulate or _query(*args, **given).device.type != "cpu"):
            return scaled_dot_product_attention(*args, **given)
        return func(*args, **given)


def _query(query: torch.Tensor, *_args: Any, **_keywords: Any) -> torch.Tensor:
    return query


@contextmanager
def sdpa(*, emulate: bool = False) -> Iterator[None]:
    """Let `scaled_dot_product_attention` stand in the place of torch's while the context lasts, in this thread.

    Parameters
    ----------
    emulate : bool, optional
        Whether CPU tensors go to the emulator; else they stay torch's, which is a thousand times as fast.
    """
    with _Instead(emulate):
        yield


def _compute(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *given: Any) -> torch.Tensor:
    result: torch.Tensor = tilekit.attention(*_laid_out(q, k, v), **_keywords(given)).transpose(1, 2)
    return result


def _compute_lse(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *given: Any) -> tuple[torch.Tensor, torch.Tensor]:
    out, lse = tilekit.attention(*_laid_out(q, k, v), **_keywords(given), lse=True)
    return out.transpose(1, 2), lse


def _compute_out(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *given: Any, out: torch.Tensor) -> None:
    tilekit.attention(*_laid_out(q, k, v), **_keywords(given), out=_heads_behind(out, "out"))


def _laid_out(*tensors: torch.Tensor) -> Iterator[torch.Tensor]:
    return (_heads_behind(one, name) for one, name in zip(tensors, ("q", "k", "v"), strict=True))


def _heads_behind(tensor: torch.Tensor, name: str) -> torch.Tensor:
    """The same memory as (B, S, H, D)."""
    if tensor.dim() != 4:
        raise ArgumentError(
            f"{name} has shape {tuple(tensor.shape)}: tilekit.torch.attention takes (batch, head, position, element); "
            "nearest: reshape it to four dimensions",
            code="TK-ATT-001",
        )
    return tensor.transpose(1, 2)


def _keywords(given: tuple[Any, ...]) -> dict[str, Any]:
    """What `tilekit.attention` is told of the operators' arguments behind the tensors."""
    read = dict(zip(_NAMES, given, strict=False))
    left, right = read.pop("left", None), read.pop("right", None)
    return {**read, "window": None if left is None and right is None else (left, right)}


def _fake(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *given: Any, out: torch.Tensor | None = None
) -> torch.Tensor:
    views: list[ArrayView] = []
    for one, name in zip((q, k, v), ("q", "k", "v"), strict=True):
        views.append(view_of_fake(_heads_behind(one, name), name))
    place = None if out is None else view_of_fake(_heads_behind(out, "out"), "out")
    keywords = _keywords(given)
    for name in ("key_lengths", "block_table"):
        if keywords.get(name) is not None:
            keywords[name] = view_of_fake(keywords[name], name)
    shape = result_of(*views, **keywords, out=place)
    return q.new_empty(shape).transpose(1, 2)


def _fake_lse(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *given: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return _fake(q, k, v, *given), q.new_empty(q.shape[:3], dtype=torch.float32)


def _fake_out(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *given: Any, out: torch.Tensor) -> None:
    _fake(q, k, v, *given, out=out)


def _refuse_gradients(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    for name, needed in zip(("q", "k", "v"), ctx.needs_input_grad, strict=False):
        if needed:
            raise ArgumentError(
                f"{name} requires a gradient: attention has none; pass {name}.detach(), or call under torch.no_grad()",
                code="TK-TORCH-001",
            )


def _backward(ctx: Any, *grads: torch.Tensor) -> tuple[None, ...]:
    raise AssertionError("a call that needs a gradient is refused")


_library = _registry.Library("tilekit", "FRAGMENT")
"""The registrations; they hold as long as this object."""


def register(name: str, schema: str, compute: Callable[..., Any], fake: Callable[..., Any]) -> None:
    """Register an operator of attention; one that returns something refuses gradients (``TK-TORCH-001``)."""
    tags = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides)
    _library.define(name + schema, tags=tags)
    for device in ("CPU", "CUDA"):
        _library.impl(name, compute, device)
    _registry.register_fake(f"tilekit::{name}", fake, lib=_library)
    if not schema.endswith("-> ()"):
        _registry.register_autograd(f"tilekit::{name}", _backward, setup_context=_refuse_gradients, lib=_library)


_ARGUMENTS = (
    "Tensor q, Tensor k, Tensor v, bool causal=False, SymInt? left=None, SymInt? right=None, float? scale=None, "
    "float? softcap=None, Tensor? key_lengths=None, Tensor? block_table=None"
)
register("attention", f"({_ARGUMENTS}) -> Tensor", _compute, _fake)
register("attention_lse", f"({_ARGUMENTS}) -> (Tensor, Tensor)", _compute_lse, _fake_lse)
register("attention_out", f"({_ARGUMENTS}, *, Tensor(a!) out) -> ()", _compute_out, _fake_out)
