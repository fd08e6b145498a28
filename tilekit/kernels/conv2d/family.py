"""Convolutions among the families: the matmul's kernels with loaders that go over images."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tilekit.kernels.conv2d.arguments import ConvArguments
from tilekit.kernels.conv2d.chips import CHIPS
from tilekit.kernels.conv2d.compiled import ConvKernel
from tilekit.kernels.conv2d.copied_build import build_on
from tilekit.kernels.conv2d.spec import ConvSpec
from tilekit.kernels.matmul.family import MATMUL, select

CONV2D = replace(
    MATMUL,
    name="conv2d",
    summary="D = activation(scale * conv(X, W) + bias + beta * residual) of images, channels last, in groups",
    targets=CHIPS,
    arguments=ConvArguments,
    spec=ConvSpec,
    select=partial(select, kind=ConvKernel),
    compile=build_on,
)
