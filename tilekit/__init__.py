"""tilekit: structured GPU kernels from hand-written PTX and AMDGCN fragments, composed in Python.

>>> import numpy as np, ml_dtypes, tilekit
>>> a = np.ones((64, 64), ml_dtypes.bfloat16)
>>> float(tilekit.matmul(a, a.T, activation="relu")[0, 0])
64.0
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Any

# Eager, because importing the submodule later would put the module in place of the object.
from tilekit.settings import settings

if TYPE_CHECKING:
    from tilekit.calls.attention import attention, attention_kernel_for
    from tilekit.calls.conv2d import conv2d, conv2d_kernel_for
    from tilekit.calls.conv2d_gradients import conv2d_input_gradient, conv2d_weight_gradient
    from tilekit.calls.grouped import grouped_kernel_for, grouped_matmul
    from tilekit.calls.matmul import compile, kernel_for, matmul
    from tilekit.calls.scaled import scaled_kernel_for, scaled_matmul
    from tilekit.epilogue.functions import ElementwiseSpec
    from tilekit.errors import TilekitError
    from tilekit.kernels.attention.config import AttentionConfig
    from tilekit.kernels.attention.sm_100a.config import BlackwellAttentionConfig
    from tilekit.kernels.attention.spec import AttentionSpec
    from tilekit.kernels.matmul.gfx942.config import Cdna3Config
    from tilekit.kernels.matmul.gfx950.config import Cdna4Config
    from tilekit.kernels.matmul.own import OwnComponents, OwnRole
    from tilekit.kernels.matmul.sm_80.config import AmpereConfig
    from tilekit.kernels.matmul.sm_86.config import Rtx30Config
    from tilekit.kernels.matmul.sm_89.config import AdaConfig
    from tilekit.kernels.matmul.sm_90a.config import MatmulConfig
    from tilekit.kernels.matmul.sm_100a.config import BlackwellConfig
    from tilekit.kernels.matmul.sm_120a.config import Rtx50Config
    from tilekit.kernels.matmul.spec import MatmulSpec
    from tilekit.scales import dequantise, lay_out_scales, quantise
    from tilekit.tuning.tuner import tune

logging.getLogger("tilekit").addHandler(logging.NullHandler())

__version__ = "0.1.0"

__all__ = [
    "AdaConfig",
    "AmpereConfig",
    "AttentionConfig",
    "AttentionSpec",
    "BlackwellAttentionConfig",
    "BlackwellConfig",
    "Cdna3Config",
    "Cdna4Config",
    "ElementwiseSpec",
    "MatmulConfig",
    "MatmulSpec",
    "OwnComponents",
    "OwnRole",
    "Rtx30Config",
    "Rtx50Config",
    "TilekitError",
    "attention",
    "attention_kernel_for",
    "compile",
    "conv2d",
    "conv2d_input_gradient",
    "conv2d_kernel_for",
    "conv2d_weight_gradient",
    "dequantise",
    "epilogue",
    "grouped_kernel_for",
    "grouped_matmul",
    "kernel_for",
    "lay_out_scales",
    "matmul",
    "quantise",
    "scaled_kernel_for",
    "scaled_matmul",
    "settings",
    "tune",
]

_HOMES = {
    "AdaConfig": "tilekit.kernels.matmul.sm_89.config",
    "AmpereConfig": "tilekit.kernels.matmul.sm_80.config",
    "AttentionConfig": "tilekit.kernels.attention.config",
    "AttentionSpec": "tilekit.kernels.attention.spec",
    "BlackwellAttentionConfig": "tilekit.kernels.attention.sm_100a.config",
    "BlackwellConfig": "tilekit.kernels.matmul.sm_100a.config",
    "Cdna3Config": "tilekit.kernels.matmul.gfx942.config",
    "Cdna4Config": "tilekit.kernels.matmul.gfx950.config",
    "ElementwiseSpec": "tilekit.epilogue.functions",
    "MatmulConfig": "tilekit.kernels.matmul.sm_90a.config",
    "MatmulSpec": "tilekit.kernels.matmul.spec",
    "OwnComponents": "tilekit.kernels.matmul.own",
    "OwnRole": "tilekit.kernels.matmul.own",
    "Rtx30Config": "tilekit.kernels.matmul.sm_86.config",
    "Rtx50Config": "tilekit.kernels.matmul.sm_120a.config",
    "TilekitError": "tilekit.errors",
    "attention": "tilekit.calls.attention",
    "attention_kernel_for": "tilekit.calls.attention",
    "compile": "tilekit.calls.matmul",
    "conv2d": "tilekit.calls.conv2d",
    "conv2d_input_gradient": "tilekit.calls.conv2d_gradients",
    "conv2d_kernel_for": "tilekit.calls.conv2d",
    "conv2d_weight_gradient": "tilekit.calls.conv2d_gradients",
    "dequantise": "tilekit.scales",
    "grouped_kernel_for": "tilekit.calls.grouped",
    "grouped_matmul": "tilekit.calls.grouped",
    "kernel_for": "tilekit.calls.matmul",
    "lay_out_scales": "tilekit.scales",
    "matmul": "tilekit.calls.matmul",
    "quantise": "tilekit.scales",
    "scaled_kernel_for": "tilekit.calls.scaled",
    "scaled_matmul": "tilekit.calls.scaled",
    "tune": "tilekit.tuning.tuner",
}


def __getattr__(name: str) -> Any:
    # Names load on first use, so that `import tilekit.emulator` and the command line's --help stay light.
    if name == "epilogue":  # the package is the decorator
        return importlib.import_module("tilekit.epilogue")
    if name not in _HOMES:
        raise AttributeError(f"module 'tilekit' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
