"""A config of any chip, as an argument."""

from __future__ import annotations

from typing import Annotated

from tilekit.annotations import Accepts
from tilekit.kernels.matmul.config import KernelConfig
from tilekit.kernels.matmul.platforms import platforms

_WORDS = ", ".join(f"a tilekit.{its.config.__name__} ({chip.name})" for chip, its in platforms().items())

AnyConfig = Annotated[KernelConfig, Accepts(_WORDS)]
"""A config of any chip, as an argument."""
