"""What Blackwell brings to the matmul."""

from tilekit.kernels.matmul.platforms import Platform
from tilekit.kernels.matmul.sm_100a import components, model, notes
from tilekit.kernels.matmul.sm_100a.config import BlackwellConfig

PLATFORM = Platform(config=BlackwellConfig, components=components, model=model, notes=notes)
