"""What each chip has: the limits a kernel's budgets are checked against, and its capabilities. One file a chip."""

from __future__ import annotations

from typing import Annotated, Final

from tilekit.annotations import Accepts, call_checked
from tilekit.emulator.core.errors import shown
from tilekit.errors import ArgumentError
from tilekit.targets.chip import CAPABILITIES, Target
from tilekit.targets.gfx942 import GFX942
from tilekit.targets.gfx950 import GFX950
from tilekit.targets.nearest import nearest
from tilekit.targets.sm_80 import SM_80
from tilekit.targets.sm_86 import SM_86
from tilekit.targets.sm_89 import SM_89
from tilekit.targets.sm_90a import SM_90A
from tilekit.targets.sm_100a import SM_100A
from tilekit.targets.sm_120a import SM_120A

__all__ = [
    "CAPABILITIES",
    "CHIPS",
    "DEFAULT",
    "GFX942",
    "GFX950",
    "SM_80",
    "SM_86",
    "SM_89",
    "SM_90A",
    "SM_100A",
    "SM_120A",
    "TARGETS",
    "ChipName",
    "PlaceName",
    "Target",
    "chip",
    "target",
]

CHIPS: Final = {t.name: t for t in (SM_80, SM_86, SM_89, SM_90A, SM_100A, SM_120A, GFX942, GFX950)}
"""Every chip that text can be written for."""

TARGETS: Final = {t.name: t for t in (SM_80, SM_86, SM_89, SM_90A, SM_100A, SM_120A, GFX942, GFX950)}
"""The chips that kernels are built for."""

DEFAULT: Final = SM_90A
"""The chip that is meant where none is named: kernels are built for it, and arrays in host memory emulated on it."""

_CHIPS: Final = " or ".join(map(repr, TARGETS))
_CODE: Final = "TK-TARGET-001"

ChipName = Annotated[str, Accepts(_CHIPS, _CODE)]
"""The name of a chip, as an argument."""

PlaceName = Annotated[str, Accepts(f"{_CHIPS}, or 'cuda' or 'hip' for arrays in host memory", _CODE)]
"""Where a product of arrays is computed, as an argument."""


@call_checked
def chip(name: str) -> Target:
    """Return the chip called `name`, which kernels of one's own may be composed for.

    Raises
    ------
    ArgumentError
        Naming the chips there are.
    """
    if not isinstance(name, str) or name not in CHIPS:
        raise ArgumentError(
            f"target={shown(name)} is not a chip that tilekit writes text for; there is {', '.join(CHIPS)}"
            f"; nearest: {nearest(name, CHIPS, DEFAULT.name)}",
            code=_CODE,
        )
    return CHIPS[name]


@call_checked
def target(name: str) -> Target:
    """Return the target called `name`.

    Raises
    ------
    ArgumentError
        Naming the targets there are.
    """
    if not isinstance(name, str) or name not in TARGETS:
        raise ArgumentError(
            f"target={shown(name)} is not a target tilekit builds kernels for; there is {', '.join(TARGETS)}"
            f"; nearest: {nearest(name, CHIPS, DEFAULT.name)}",
            code=_CODE,
        )
    return TARGETS[name]
