"""How a matmul kernel computes on CDNA3."""

from __future__ import annotations

from dataclasses import dataclass

from tilekit.annotations import call_checked
from tilekit.kernels.matmul.cdna.config import CdnaConfig
from tilekit.kernels.matmul.gfx942.clocks import CLOCKS


@call_checked
@dataclass(frozen=True)
class Cdna3Config(CdnaConfig):
    """One way to run a matmul on CDNA3 (gfx942): the fields of a `CdnaConfig`, with defaults that suit the chip."""

    TARGET = "gfx942"
    CLOCKS = CLOCKS
