"""Products that options describe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from tilekit.cli.families import is_block_scaled, is_blockwise

if TYPE_CHECKING:
    from tilekit.bench.blockwise import BlockwiseWorkload
    from tilekit.bench.workload import MatmulWorkload
    from tilekit.cli.options import CallOptions
    from tilekit.epilogue.functions import Activation as ActivationName
    from tilekit.kernels.family import Family
    from tilekit.kernels.matmul.spec import Accumulation
    from tilekit.tiles.call import Major


def rows_of(family: Family, m: int | None, usual: int) -> int:
    """Rows of A: those asked for, or else as many as are usual and the family takes."""
    return m if m is not None else min(usual, family.most_rows or usual)


def workload_of(
    shape: tuple[int, int, int],
    batch: int | None,
    dtype: str | None,
    out_dtype: str | None,
    a_major: str,
    b_major: str,
    bias: bool = False,
    activation: str | None = None,
    contiguous: bool = False,
    accumulation: str = "fast",
) -> MatmulWorkload:
    """Build the workload that the options describe, of bf16 where they name no type.

    Workload and spec check what they say.
    """
    from tilekit.bench.workload import MatmulWorkload
    from tilekit.dtypes import BF16, S8, S32, as_dtype
    from tilekit.errors import ArgumentError

    dtype = dtype or "bf16"
    names = dtype.split(",")
    if len(names) > 2:
        raise ArgumentError.of("--dtype", dtype, legal="one type, or two as A,B", nearest=",".join(names[:2]))
    if "f32" in names:
        raise ArgumentError.of(
            "--dtype",
            dtype,
            legal="f32 operands as tf32, since tensor cores read 10 bits of their mantissa: --dtype tf32",
            nearest=dtype.replace("f32", "tf32") if "tf32" not in names else "tf32",
            code="TK-MM-001",
        )
    a_dtype, b_dtype = (as_dtype("f32" if name == "tf32" else name, "--dtype") for name in (names[0], names[-1]))
    default = S32 if a_dtype is S8 else a_dtype if a_dtype.bits > 8 else BF16
    return MatmulWorkload(
        *shape,
        batch=batch,
        a_dtype=a_dtype,
        b_dtype=b_dtype,
        out_dtype=default if out_dtype is None else as_dtype(out_dtype, "--out-dtype"),
        a_major=cast("Major", a_major),
        b_major=cast("Major", b_major),
        bias=bias,
        activation=cast("ActivationName | None", activation),
        precision="tf32" if "tf32" in names else None,
        accumulation=cast("Accumulation", accumulation),
        padded=not contiguous,
    )


def product_of(family: Family, call: CallOptions, batch: int | None) -> MatmulWorkload:
    """Return the product that options describe, with scales where the family has them."""
    from tilekit.kernels.block_scaled.quantised import QuantisedResult
    from tilekit.tile_op.block_scaled import FORMATS

    scaled = is_block_scaled(family)
    dtype = "e4m3" if scaled else call.dtype
    n, k = (
        given if given is not None else usual for given, usual in zip((call.n, call.k), call.usual[1:], strict=True)
    )
    if scaled:
        QuantisedResult.read({"out_dtype": call.out_dtype})  # refuses what is neither a format nor a type
    to = call.out_dtype if scaled and call.out_dtype in FORMATS else None
    plain = workload_of(
        (rows_of(family, call.m, call.usual[0]), n, k),
        batch,
        dtype,
        call.out_dtype if to is None else None,
        call.a_major,
        call.b_major,
        call.bias,
        call.activation,
        call.contiguous,
        call.accumulation,
    )
    if is_blockwise(family):
        return with_scales(plain, call.dtype)
    if not scaled:
        return plain
    from tilekit.bench.scaled import ScaledWorkload

    return ScaledWorkload.like(plain, call.dtype or "mxfp8", to)


def with_scales(like: MatmulWorkload, dtype: str | None) -> BlockwiseWorkload:
    """Return the same product with scales of blocks: K-major, and of e4m3 where no type is asked for."""
    from tilekit.bench.blockwise import BlockwiseWorkload
    from tilekit.dtypes import FP8
    from tilekit.errors import ArgumentError

    legal = "of a product without scales of blocks only"
    facts = {"--a-major": like.a_major, "--b-major": like.b_major, "--accumulation": like.accumulation}
    for (option, given), usual in zip(facts.items(), ("k", "k", "fast"), strict=True):
        if given != usual:
            raise ArgumentError.of(option, given, legal=legal, nearest=usual, code="TK-CLI-001")
    if like.batch is not None:
        raise ArgumentError.of("--batch", like.batch, legal=legal, code="TK-CLI-001")
    types: dict[str, Any] = {} if dtype is None else {"a_dtype": like.a_dtype, "b_dtype": like.b_dtype}
    if not {*types.values()} <= {*FP8}:
        raise ArgumentError.of("--dtype", dtype, legal="e4m3 or e5m2", nearest="e4m3", code="TK-CLI-001")
    how: dict[str, Any] = {name: getattr(like, name) for name in ("out_dtype", "bias", "activation", "padded")}
    return BlockwiseWorkload(like.m, like.n, like.k, **types, **how)
