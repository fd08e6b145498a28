"""Attention that options describe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilekit.cli.common import refuse
from tilekit.cli.numbers import whole_numbers, window
from tilekit.cli.options import OF_ATTENTION

if TYPE_CHECKING:
    from tilekit.bench.attention import AttentionWorkload
    from tilekit.cli.options import CallOptions


def attention_of(call: CallOptions, batch: int | None) -> AttentionWorkload:
    """Return the attention that options describe: whole, of packed sequences, or over a cache."""
    from tilekit.bench.attention import AttentionWorkload
    from tilekit.bench.cached_attention import CachedAttentionWorkload
    from tilekit.bench.packed_attention import PackedAttentionWorkload
    from tilekit.dtypes import as_dtype
    from tilekit.kernels.attention.arguments import require_divisor

    own = {f"--{name.replace('_', '-')}" for name in (*OF_ATTENTION, "dtype", "target")}
    for option, value in ({**call.given, **{f"--{name}": extent for name, extent in call.extents.items()}}).items():
        if option not in own:
            refuse(option, value, "of another family than attention")
    taken = {"--batch": batch, "--keys": call.keys, "--queries": call.queries}
    if call.lengths is not None:
        for option, given in (*taken.items(), ("--key-lengths", call.key_lengths)):
            if given is not None:
                refuse(option, given, "of sequences of one length, without --lengths")
    if call.key_lengths is not None:
        for option in ("--batch", "--keys"):
            if taken[option] is not None:
                refuse(option, taken[option], "without --key-lengths, which says it")
    elif call.page is not None:
        refuse("--page", call.page, "with --key-lengths", "--key-lengths 300,50")
    heads, queries = 2 if call.heads is None else call.heads, 256 if call.queries is None else call.queries
    groups = heads if call.kv_heads is None else call.kv_heads
    if min(heads, groups) > 0:
        require_divisor(groups, heads, "--kv-heads", "--heads,")
    whole = AttentionWorkload(
        1 if batch is None else batch,
        queries,
        queries if call.keys is None else call.keys,
        heads,
        groups,
        64 if call.head_dim is None else call.head_dim,
        as_dtype(call.dtype or "bf16", "--dtype"),
        call.causal,
        None if call.window is None else window(call.window),
        call.softcap,
    )
    if call.key_lengths is not None:
        return CachedAttentionWorkload.of(whole_numbers(call.key_lengths, "--key-lengths"), call.page or 0, whole)
    if call.lengths is not None:
        return PackedAttentionWorkload.of(whole_numbers(call.lengths, "--lengths"), whole)
    return whole


def attention_like(
    dtype: str | None, out_dtype: str | None, a_major: str, b_major: str, accumulation: str
) -> AttentionWorkload:
    """Return attention of some shape of a type; what a product has besides is refused."""
    from tilekit.bench.attention import AttentionWorkload
    from tilekit.dtypes import as_dtype

    others = {"--a-major": (a_major, "k"), "--b-major": (b_major, "k"), "--accumulation": (accumulation, "fast")}
    for option, (given, usual) in ({"--out-dtype": (out_dtype, None)} | others).items():
        if given != usual:
            refuse(option, given, "of another family than attention", usual)
    return AttentionWorkload(dtype=as_dtype(dtype or "bf16", "--dtype"))
