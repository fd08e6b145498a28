"""What Hopper brings to the matmul."""

from tilekit.kernels.matmul.platforms import Platform
from tilekit.kernels.matmul.sm_90a import components, model, notes
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig

PLATFORM = Platform(config=MatmulConfig, components=components, model=model, notes=notes)
