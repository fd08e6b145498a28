"""What CDNA4 brings to the matmul."""

from tilekit.kernels.matmul.cdna import components, notes
from tilekit.kernels.matmul.cdna.model import CdnaModel
from tilekit.kernels.matmul.gfx950.config import Cdna4Config
from tilekit.kernels.matmul.platforms import Platform

PLATFORM = Platform(config=Cdna4Config, components=components, model=CdnaModel(Cdna4Config), notes=notes)
