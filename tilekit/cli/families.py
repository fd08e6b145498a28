"""Which kernel family KERNEL names, and what kind of call it computes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilekit.cli import own_kernel
from tilekit.cli.common import refuse

if TYPE_CHECKING:
    from tilekit.kernels.family import Family
    from tilekit.targets import ChipName


def product_family(kernel: str) -> Family:
    """Return the kernel family of this name."""
    from difflib import get_close_matches

    from tilekit.errors import ArgumentError
    from tilekit.kernels.registry import families

    known = families()
    if kernel not in known:
        meant = own_kernel.near_file(kernel)
        nearest = [meant] if meant else get_close_matches(kernel, known, n=1)
        legal = f"{', '.join(known)}; {own_kernel.OR_FILE}"
        raise ArgumentError.of(
            "KERNEL", kernel, legal=legal, nearest=nearest[0] if nearest else None, code="TK-CLI-001"
        )
    return known[kernel]


def tuned_family(kernel: str) -> Family:
    """Return the kernel family of this name, of those that have configs to choose from."""
    from difflib import get_close_matches

    from tilekit.kernels.registry import families

    known = {name: family for name, family in families().items() if family.choices is not None}
    if kernel not in known:
        nearest = get_close_matches(kernel, known, n=1)
        refuse("KERNEL", kernel, ", ".join(known), nearest[0] if nearest else None)
    return known[kernel]


def takes_images(family: Family) -> bool:
    """Whether a family's calls are convolutions."""
    from tilekit.kernels.conv2d.arguments import ConvArguments

    return family.arguments is ConvArguments


def is_block_scaled(family: Family) -> bool:
    """Whether operands of a family's calls are scaled in blocks."""
    from tilekit.kernels.block_scaled.arguments import BlockScaledArguments

    return family.arguments is BlockScaledArguments


def attends(family: Family) -> bool:
    """Whether a family's calls are attention."""
    from tilekit.kernels.attention.arguments import AttentionArguments

    return family.arguments is AttentionArguments


def is_blockwise(family: Family) -> bool:
    """Whether a family's calls are products with scales of blocks."""
    from tilekit.kernels.blockwise.arguments import Scaled

    return issubclass(family.arguments, Scaled)


def takes_batches(family: Family) -> bool:
    """Whether a family's calls are products of which there may be many."""
    others = (takes_images, attends, is_block_scaled, is_blockwise)
    return not family.grouped and not any(kind(family) for kind in others)


def chip_of(target: str | None) -> ChipName | None:
    """Check the name of a chip."""
    from tilekit.targets import target as chip_named

    return None if target is None else chip_named(target).name
