"""The kernel of a convolution's spec on any chip: what is for an engine, threads copy where there is none."""

from __future__ import annotations

from tilekit.kernels.conv2d.chips import goes_over_images
from tilekit.kernels.conv2d.compiled import ConvKernel
from tilekit.kernels.conv2d.copied_spec import CopiedSpec
from tilekit.kernels.conv2d.spec import ConvSpec
from tilekit.kernels.conv2d.threads import ThreadSpec
from tilekit.kernels.matmul.any_config import AnyConfig
from tilekit.kernels.matmul.compiled import MatmulKernel
from tilekit.kernels.matmul.family import build
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import Target
from tilekit.tiles.operand import SWIZZLE_BYTES


def build_on(spec: MatmulSpec, config: AnyConfig | None, target: Target) -> MatmulKernel:
    """Build it; by default with the config that suits large outputs."""
    if isinstance(spec, ConvSpec) and spec.by_engine and not goes_over_images(target):
        lines = isinstance(spec, ThreadSpec) and spec.lines
        ways = {"swizzle": SWIZZLE_BYTES, "block_bytes": SWIZZLE_BYTES, "im2col_b": spec.copies and not lines}
        spec = CopiedSpec(**vars(spec) | ways)
    return build(spec, config, target, kind=ConvKernel)
