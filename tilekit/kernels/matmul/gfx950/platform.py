"""What CDNA4 brings to the matmul."""

from tilekit.kernels.matmul.cdna import components, notes
from tilekit.kernels.matmul.cdna.model import CdnaModel
from tilekit.kernels.matmul.gfx950.config import Cdna4Config
from tilekit.kernels.matmul.platforms import Platform

MEMORY_TBPS = 8.0
"""Of device memory (data sheet of MI355X)."""

PLATFORM = Platform(config=Cdna4Config, components=components, model=CdnaModel(Cdna4Config, MEMORY_TBPS), notes=notes)
