"""What A100 brings to the matmul."""

from tilekit.kernels.matmul.platforms import Platform
from tilekit.kernels.matmul.sm_80.config import AmpereConfig
from tilekit.kernels.matmul.warp_matrix import components, notes
from tilekit.kernels.matmul.warp_matrix.model import WarpMatrixModel

MEMORY_TBPS = 1.9
"""Of device memory (data sheet of A100)."""

FLOPS = 2048
"""Of a multiprocessor in a clock, bf16 with sums in f32 (data sheet)."""

L2_BYTES = 40
"""What L2 brings a multiprocessor in a clock: assumed."""

PLATFORM = Platform(
    config=AmpereConfig,
    components=components,
    model=WarpMatrixModel(AmpereConfig, MEMORY_TBPS, FLOPS, L2_BYTES),
    notes=notes,
)
