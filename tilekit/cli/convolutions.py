"""Convolutions that options describe."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tilekit.cli.common import refuse
from tilekit.cli.numbers import both, refuse_extent
from tilekit.cli.products import workload_of

if TYPE_CHECKING:
    from tilekit.bench.conv2d import ConvWorkload
    from tilekit.cli.options import CallOptions


def convolution_of(call: CallOptions) -> ConvWorkload:
    """Return the convolution that options describe."""
    like = convolution_like(
        call.dtype or "bf16", call.out_dtype, call.bias, call.activation, call.accumulation, call.residual
    )
    h, r, c = (given if given is not None else usual for given, usual in ((call.h, 28), (call.r, 3), (call.c, 64)))
    w, s = h if call.w is None else call.w, r if call.s is None else call.s
    given = {"stride": call.stride, "padding": call.padding, "dilation": call.dilation}
    how: dict[str, Any] = {name: both(text, f"--{name}") for name, text in given.items() if text is not None}
    n, k, groups = (
        given if given is not None else usual for given, usual in ((call.n, 1), (call.k, 64), (call.groups, 1))
    )
    for name, extent in {"n": n, "h": h, "w": w, "c": c, "k": k, "r": r, "s": s, "groups": groups}.items():
        if extent < 1:
            refuse_extent(f"--{name}", extent, "a whole number from 1 on", 1)
    if min(how.get("stride", (1, 1))) < 1:
        refuse_extent("--stride", call.stride, "a whole number from 1 on, or two as DxA", 1)
    x, filters = (n, h, w, c), (k, r, s)
    return replace(like, x=x, filters=filters, groups=groups, target=call.target, **how)


def convolution_like(
    dtype: str,
    out_dtype: str | None,
    bias: bool = False,
    activation: str | None = None,
    accumulation: str = "fast",
    residual: bool = False,
) -> ConvWorkload:
    """Return a convolution of some shape of these types."""
    from tilekit.bench.conv2d import ConvWorkload

    if {"f32", "tf32"} & set(dtype.split(",")):
        refuse("--dtype", dtype, "bf16, f16, e4m3 or e5m2 of conv2d", "bf16")
    like = workload_of((1, 1, 1), None, dtype, out_dtype, "k", "k", bias, activation, accumulation=accumulation)
    names = ("a_dtype", "b_dtype", "out_dtype", "bias", "activation", "accumulation")
    return ConvWorkload((1, 1, 1, 64), (64, 1, 1), residual=residual, **{name: getattr(like, name) for name in names})
