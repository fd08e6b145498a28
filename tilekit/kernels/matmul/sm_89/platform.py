"""What RTX 40 brings to the matmul."""

from tilekit.kernels.matmul.platforms import Platform
from tilekit.kernels.matmul.sm_89.config import AdaConfig
from tilekit.kernels.matmul.warp_matrix import components, notes
from tilekit.kernels.matmul.warp_matrix.model import WarpMatrixModel

MEMORY_TBPS = 1.0
"""Of device memory (data sheet of RTX 4090)."""

FLOPS = 512
"""Of a multiprocessor in a clock, bf16 with sums in f32 (data sheet)."""

L2_BYTES = 16
"""What L2 brings a multiprocessor in a clock: assumed."""

PLATFORM = Platform(
    config=AdaConfig, components=components, model=WarpMatrixModel(AdaConfig, MEMORY_TBPS, FLOPS, L2_BYTES), notes=notes
)
