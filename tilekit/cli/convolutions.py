"""Convolutions that options describe."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tilekit.cli.common import refuse
from tilekit.cli.numbers import axes, both, refuse_extent
from tilekit.cli.products import workload_of

if TYPE_CHECKING:
    from tilekit.bench.conv2d import ConvWorkload
    from tilekit.cli.options import CallOptions


def convolution_of(call: CallOptions) -> ConvWorkload:
    """Return the convolution that options describe."""
    fused: dict[str, Any] = {"bias": call.bias, "activation": call.activation, "residual": call.residual}
    like = convolution_like(call.dtype, call.out_dtype, call.accumulation, **fused)
    h, r, c = (given if given is not None else usual for given, usual in ((call.h, 28), (call.r, 3), (call.c, 64)))
    w, s = h if call.w is None else call.w, r if call.s is None else call.s
    given = {"stride": call.stride, "padding": call.padding, "dilation": call.dilation}
    how: dict[str, Any] = {name: both(text, f"--{name}") for name, text in given.items() if text is not None}
    n, k, groups = (one if one is not None else usual for one, usual in ((call.n, 1), (call.k, 64), (call.groups, 1)))
    for name, extent in {"n": n, "h": h, "w": w, "c": c, "k": k, "r": r, "s": s, "groups": groups}.items():
        if extent < 1:
            refuse_extent(f"--{name}", extent, "a whole number from 1 on", 1)
    for name in ("stride", "dilation"):
        down, along = how.get(name, (1, 1))
        if min(down, along) < 1:
            legal = "a whole number from 1 on, or two as DxA"
            refuse_extent(f"--{name}", given[name], legal, axes(max(1, down), max(1, along)))
    x, filters = (n, h, w, c), (k, r, s)
    return replace(like, x=x, filters=filters, groups=groups, target=call.target, **how)


def convolution_like(
    dtype: str | None,
    out_dtype: str | None,
    accumulation: str,
    *,
    bias: bool = False,
    activation: str | None = None,
    residual: bool = False,
) -> ConvWorkload:
    """Return a convolution of some shape of these types."""
    from tilekit.bench.conv2d import ConvWorkload
    from tilekit.dtypes import BF16, F16, FP8

    legal = "bf16, f16, e4m3 or e5m2 of conv2d, and two of 8-bit floats as A,B"
    if {"f32", "tf32"} & set((dtype or "").split(",")):
        refuse("--dtype", dtype, legal, "bf16")
    like = workload_of((1, 1, 1), None, dtype, out_dtype, "k", "k", bias, activation, accumulation=accumulation)
    types = {like.a_dtype, like.b_dtype}
    if not (types <= {*FP8} or types in ({BF16}, {F16})):
        alone = next((one.name for one in (like.a_dtype, like.b_dtype) if one in (BF16, F16)), "bf16")
        refuse("--dtype", dtype, legal, alone)
    names = ("a_dtype", "b_dtype", "out_dtype", "bias", "activation", "accumulation")
    alike = {name: getattr(like, name) for name in names}
    return ConvWorkload((1, 1, 1, 64), (64, 1, 1), residual=residual, **alike)
