"""What CDNA3 brings to the matmul."""

from tilekit.kernels.matmul.cdna import components, notes
from tilekit.kernels.matmul.cdna.model import CdnaModel
from tilekit.kernels.matmul.gfx942.config import Cdna3Config
from tilekit.kernels.matmul.platforms import Platform

MEMORY_TBPS = 5.3
"""Of device memory (data sheet of MI300X)."""

PLATFORM = Platform(config=Cdna3Config, components=components, model=CdnaModel(Cdna3Config, MEMORY_TBPS), notes=notes)
