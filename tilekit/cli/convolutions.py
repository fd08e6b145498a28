"""Convolutions that options describe."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tilekit.cli.numbers import both
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
    groups = 1 if call.groups is None else call.groups
    x, filters = (1 if call.n is None else call.n, h, w, c), (64 if call.k is None else call.k, r, s)
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

    like = workload_of((1, 1, 1), None, dtype, out_dtype, "k", "k", bias, activation, accumulation=accumulation)
    names = ("a_dtype", "b_dtype", "out_dtype", "bias", "activation", "accumulation")
    return ConvWorkload((1, 1, 1, 64), (64, 1, 1), residual=residual, **{name: getattr(like, name) for name in names})
