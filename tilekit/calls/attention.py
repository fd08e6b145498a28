"""The call of attention: arrays in, arrays out."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from tilekit.annotations import call_checked, leaves_out_unknown, refuse_call
from tilekit.arrays import fingerprint, resolve_stream, view_of
from tilekit.kernels.attention.arguments import AttentionArguments
from tilekit.kernels.attention.compiled import AttentionKernel
from tilekit.kernels.attention.platforms import AnyAttentionConfig
from tilekit.kernels.dispatch import select
from tilekit.kernels.launch_cache import LaunchCache
from tilekit.targets import PlaceName
from tilekit.tuning.first_call import tuned_or_timed
from tilekit.tuning.lookup import tuned_config

_launches = LaunchCache()


@leaves_out_unknown
def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = False,
    window: tuple[int | None, int | None] | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    out: Any = None,
    lse: Any = None,
    lengths: Any = None,
    key_lengths: Any = None,
    block_table: Any = None,
    stream: Any = None,
    config: AnyAttentionConfig | None = None,
    target: PlaceName | None = None,
    **unknown: Any,
) -> Any:
    """Return ``softmax(scale * q @ kᵀ) @ v`` of each head, accumulated in f32.

    Parameters
    ----------
    q, k, v
        (B, Sq, H, D), (B, Sk, Hk, D) and (B, Sk, Hk, Dv): CuPy, torch or NumPy arrays of bf16 (through ml_dtypes) or
        f16. Hk divides H, and head h attends to keys and values of head ``h // (H // Hk)``. The elements of a head lie
        behind each other, every other dimension anywhere, in multiples of 16 bytes: (B, H, S, D) memory is a transpose
        and no copy, and one batch entry or one head may stand for all (a stride of 0). D and Dv are multiples of 8 up
        to 256; those of 64, 96, 128, 192 and 256 fill their tiles.
    causal
        Whether query i sees keys up to ``i + Sk - Sq`` alone: the last query sees all.
    window
        (left, right): how many keys before and after its own, that of the diagonal, a query sees; None for all.
    scale
        A positive number, by default D ** -0.5.
    softcap
        Scores become ``softcap * tanh(score / softcap)`` before the softmax, with tanh to 11 bits.
    out
        Where to write, (B, Sq, H, Dv); made new if None. Rows of queries that see no key are 0.
    lse
        True, or where to write the logarithms of the sums of exponentials, (B, H, Sq) f32: minus infinity for queries
        that see no key. The call then returns ``(out, lse)``.
    lengths
        Where packed sequences begin, and where the last ends: (B + 1,) int32, rising from 0 to the positions of q and
        k; a pair of such arrays where sequences have other lengths in k than in q. Arrays are then (positions, H, D),
        the sequences behind each other, and lse is (H, positions). What arrays on a device hold is clamped to the
        positions that there are; those of no sequence are not written.
    key_lengths
        How many keys each batch entry has in use, (B,) int32: k and v are then caches, of which what lies behind may
        be anything, and the diagonal of masks ends at an entry's last key in use. What an array on a device holds is
        clamped to what there is room for.
    block_table
        With `key_lengths`, k and v of shape (blocks, block size, Hk, D): where the blocks of each batch entry are, an
        int32 array (B, most blocks of an entry). Block sizes are multiples of 8; entries behind the keys in use are
        not looked at, and what an array on a device holds is clamped to the blocks that there are.
    stream, target
        As for `tilekit.matmul`; sm_90a or sm_100a.
    config
        How to compute: an `AttentionConfig`, on sm_100a a `BlackwellAttentionConfig`; by default chosen for head dims
        and mask.

    Raises
    ------
    ArgumentError
        Before anything is launched, naming the argument, what was given, what is legal, and the nearest legal value.
    ConfigError
        Listing every rule that `config` violates.

    Examples
    --------
    >>> import numpy as np, tilekit
    >>> q = k = np.zeros((1, 4, 2, 64), np.float16)
    >>> v = np.ones((1, 4, 2, 64), np.float16)
    >>> float(tilekit.attention(q, k, v, causal=True)[0, 3, 1, 0])
    1.0
    """
    if unknown:
        refuse_call(attention, (q, k, v), unknown)
    key: Hashable = None
    if out is not None and not isinstance(lse, bool):
        try:
            starts = tuple(lengths) if isinstance(lengths, tuple | list) else (lengths,)
            given = (q, k, v, out, lse, key_lengths, block_table, *starts)
            arrays = tuple(None if array is None else fingerprint(array) for array in given)
            key = (arrays, causal, None if window is None else tuple(window), scale, softcap, config, target)
            cached = _launches.launches.get(key)
        except Exception:  # something that has no fingerprint, or no legal value: parsing it says what
            cached = key = None
        if cached is not None:
            cached.launch(cached.current_stream() if stream is None else resolve_stream(stream, view_of(out)))
            return out if lse is None else (out, lse)
    arguments = AttentionArguments.parse(
        q,
        k,
        v,
        causal=causal,
        window=window,
        scale=scale,
        softcap=softcap,
        out=out,
        lse=lse,
        lengths=lengths,
        key_lengths=key_lengths,
        block_table=block_table,
        config=config,
        target=target,
    )
    plan = select(arguments, tuned_or_timed).kernel.plan(arguments)
    plan(stream)
    if plan.cacheable is not None and key is not None:
        _launches.keep_launch(key, plan.cacheable)
    return plan.out


@call_checked
def attention_kernel_for(q: Any, k: Any, v: Any, **keywords: Any) -> AttentionKernel:
    """Return the kernel that `attention` launches for these arguments, to look at: as `kernel_for` does of `matmul`."""
    refuse_call(AttentionArguments.parse, (q, k, v), keywords, "attention_kernel_for")
    kernel = select(AttentionArguments.parse(q, k, v, **keywords), tuned_config).kernel
    assert isinstance(kernel, AttentionKernel)
    return kernel
