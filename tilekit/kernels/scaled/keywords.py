"""What `tilekit.scaled_matmul` takes by keyword."""

from __future__ import annotations

from typing import Any, TypedDict

from tilekit.epilogue.functions import Activation
from tilekit.epilogue.quantised import ScaleLayout
from tilekit.kernels.matmul.any_config import AnyConfig
from tilekit.targets import PlaceName


class ScaledOperands(TypedDict, total=False):
    """What the epilogue takes: of a call, and of arrays that a kernel is bound to."""

    bias: Any
    scale: Any
    residual: Any
    beta: float
    epilogue: Any
    out_scale: float | None


OF_RESULTS = ("out_scale", "scale_layout")
"""What is said of a result in a block-scaled format alone."""


class ScaledKeywords(ScaledOperands, total=False):
    """What `tilekit.scaled_matmul` takes by keyword, but for ``stream``; it says what each is."""

    out: Any
    activation: Activation | None
    out_dtype: Any
    scale_layout: ScaleLayout | None
    config: AnyConfig | None
    target: PlaceName | None
