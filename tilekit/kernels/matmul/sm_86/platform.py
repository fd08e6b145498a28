"""What RTX 30 brings to the matmul."""

from tilekit.kernels.matmul.platforms import Platform
from tilekit.kernels.matmul.sm_86.config import Rtx30Config
from tilekit.kernels.matmul.warp_matrix import components, notes
from tilekit.kernels.matmul.warp_matrix.model import WarpMatrixModel

MEMORY_TBPS = 0.94
"""Of device memory (data sheet of RTX 3090)."""

FLOPS = 512
"""Of a multiprocessor in a clock, bf16 with sums in f32 (data sheet)."""

L2_BYTES = 16
"""What L2 brings a multiprocessor in a clock: assumed."""

PLATFORM = Platform(
    config=Rtx30Config,
    components=components,
    model=WarpMatrixModel(Rtx30Config, MEMORY_TBPS, FLOPS, L2_BYTES),
    notes=notes,
)
