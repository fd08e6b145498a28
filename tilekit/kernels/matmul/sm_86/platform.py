"""What RTX 30 brings to the matmul."""

from tilekit.kernels.matmul.sm_86.config import Ampere86Config
from tilekit.kernels.matmul.platforms import Platform
from tilekit.kernels.matmul.warp_matrix import components, notes
from tilekit.kernels.matmul.warp_matrix.model import WarpMatrixModel

MEMORY_TBPS = 0.94
"""Of device memory (data sheet of RTX 3090)."""

FLOPS = 512
"""Of a multiprocessor in a clock, bf16 with sums in f32 (data sheet)."""

PLATFORM = Platform(
    config=Ampere86Config, components=components, model=WarpMatrixModel(Ampere86Config, MEMORY_TBPS, FLOPS), notes=notes
)
