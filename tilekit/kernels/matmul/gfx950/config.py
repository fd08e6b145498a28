"""How a matmul kernel computes on CDNA4."""

from __future__ import annotations

from dataclasses import dataclass

from tilekit.annotations import call_checked
from tilekit.kernels.matmul.cdna.config import CdnaConfig
from tilekit.kernels.matmul.gfx950.clocks import CLOCKS


@call_checked
@dataclass(frozen=True)
class Cdna4Config(CdnaConfig):
    """One way to run a matmul on CDNA4 (gfx950): the fields of a `CdnaConfig`, with defaults that suit the chip."""

    TARGET = "gfx950"
    CLOCKS = CLOCKS
