"""Which kernel family KERNEL names, and what kind of call it computes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilekit.cli import own_kernel
from tilekit.cli.common import refuse

if TYPE_CHECKING:
    from tilekit.kernels.family import Family
    from tilekit.targets import ChipName


def product_family(kernel: str) -> Family:
    """Return the kernel family of this name, of those whose calls options describe."""
    from tilekit.errors import ArgumentError
    from tilekit.kernels.attention.arguments import AttentionArguments
    from tilekit.kernels.block_scaled.arguments import BlockScaledArguments
    from tilekit.kernels.blockwise.arguments import BlockwiseArguments
    from tilekit.kernels.conv2d.arguments import ConvArguments
    from tilekit.kernels.matmul.arguments import MatmulArguments
    from tilekit.kernels.registry import families

    known = families()
    described = (MatmulArguments, ConvArguments, BlockScaledArguments, BlockwiseArguments, AttentionArguments)
    products = [family.name for family in known.values() if family.arguments in described]
    if kernel not in products:
        import difflib

        meant = own_kernel.near_file(kernel)
        nearest = [meant] if meant else difflib.get_close_matches(kernel, products, n=1)
        legal = f"{', '.join(products)}; {own_kernel.OR_FILE}"
        others = difflib.get_close_matches(kernel, known.keys() - set(products), n=1)
        if kernel not in known and others and not nearest:
            legal += f"; {others[0]} runs from Python, as {_python_call(known[others[0]])}"
        if kernel in known:
            from tilekit.bench.suites import SUITES

            suite = kernel.removesuffix("_matmul")
            measured = f", and in `tilekit bench --suite {suite}`" if suite in SUITES else ""
            legal += f"; {kernel} runs from Python, as {_python_call(known[kernel])}{measured}"
        raise ArgumentError.of(
            "KERNEL", kernel, legal=legal, nearest=nearest[0] if nearest else None, code="TK-CLI-001"
        )
    return known[kernel]


def _python_call(family: Family) -> str:
    """What computes a family of groups' calls."""
    return "tilekit.grouped_matmul" + (" with scale_a and scale_b" if is_blockwise(family) else "")


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


def chip_of(target: str | None) -> ChipName | None:
    """Check the name of a chip."""
    from tilekit.targets import target as chip_named

    return None if target is None else chip_named(target).name
