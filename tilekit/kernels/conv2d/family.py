"""Convolutions among the families: the matmul's kernels with loaders that go over images."""

from __future__ import annotations

from tilekit.kernels.conv2d.arguments import ConvArguments
from tilekit.kernels.conv2d.spec import ConvSpec
from tilekit.kernels.family import Family
from tilekit.kernels.matmul.family import MATMUL, build, select

CONV2D = Family(
    name="conv2d",
    summary="D = activation(scale * conv(X, W) + bias + beta * residual) of images, channels last, in groups",
    targets=MATMUL.targets,
    arguments=ConvArguments,
    parse=ConvArguments.parse,
    spec=ConvSpec,
    select=select,
    compile=build,
)
