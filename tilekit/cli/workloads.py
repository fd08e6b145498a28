"""What the options of a command describe: a family, a workload, a config, and the kernel that is taken for it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

from tilekit.cli import own_kernel
from tilekit.cli.common import refuse
from tilekit.cli.options import DEFAULT_TARGET

if TYPE_CHECKING:
    from tilekit.bench.attention import AttentionWorkload
    from tilekit.bench.blockwise import BlockwiseWorkload
    from tilekit.bench.conv2d import ConvWorkload
    from tilekit.bench.workload import MatmulWorkload
    from tilekit.cli.options import CallOptions
    from tilekit.epilogue.functions import Activation as ActivationName
    from tilekit.kernels.family import Family
    from tilekit.kernels.matmul.config import KernelConfig
    from tilekit.kernels.matmul.spec import Accumulation
    from tilekit.targets import ChipName, Target
    from tilekit.tiles.call import Major
    from tilekit.tuning.workloads import Tunable


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

        nearest = difflib.get_close_matches(kernel, products, n=1)
        legal = f"{', '.join(products)}; {own_kernel.OR_FILE}"
        others = difflib.get_close_matches(kernel, known.keys() - set(products), n=1)
        if kernel not in known and others and not nearest:
            legal += f"; {others[0]} runs from Python, as tilekit.{others[0]}"
        if kernel in known:
            from tilekit.bench.suites import SUITES

            suite = kernel.removesuffix("_matmul")
            measured = f", and in `tilekit bench --suite {suite}`" if suite in SUITES else ""
            legal += f"; {kernel} runs from Python, as tilekit.{kernel}{measured}"
        raise ArgumentError.of(
            "KERNEL", kernel, legal=legal, nearest=nearest[0] if nearest else None, code="TK-CLI-001"
        )
    return known[kernel]


def rows_of(family: Family, m: int | None, usual: int) -> int:
    """Rows of A: those asked for, or else as many as are usual and the family takes."""
    return m if m is not None else min(usual, family.most_rows or usual)


def workload_of(
    shape: tuple[int, int, int],
    batch: int | None,
    dtype: str,
    out_dtype: str | None,
    a_major: str,
    b_major: str,
    bias: bool = False,
    activation: str | None = None,
    contiguous: bool = False,
    accumulation: str = "fast",
) -> MatmulWorkload:
    """Build the workload that the options describe; workload and spec check what the options say."""
    from tilekit.bench.workload import MatmulWorkload
    from tilekit.dtypes import BF16, S8, S32, as_dtype
    from tilekit.errors import ArgumentError

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


def with_scales(like: MatmulWorkload, dtype: str) -> BlockwiseWorkload:
    """Return the same product with scales of blocks: of e4m3, where the usual bf16 stands, and K-major."""
    from tilekit.bench.blockwise import BlockwiseWorkload
    from tilekit.dtypes import E4M3
    from tilekit.errors import ArgumentError

    legal = "of a product without scales of blocks only"
    facts = {"--a-major": like.a_major, "--b-major": like.b_major, "--accumulation": like.accumulation}
    for (option, given), usual in zip(facts.items(), ("k", "k", "fast"), strict=True):
        if given != usual:
            raise ArgumentError.of(option, given, legal=legal, nearest=usual, code="TK-CLI-001")
    if like.batch is not None:
        raise ArgumentError.of("--batch", like.batch, legal=legal, code="TK-CLI-001")
    types: dict[str, Any] = {} if dtype == "bf16" else {"a_dtype": like.a_dtype, "b_dtype": like.b_dtype}
    if types and E4M3.bits not in {one.bits for one in types.values()}:
        raise ArgumentError.of("--dtype", dtype, legal="e4m3 or e5m2", nearest="e4m3", code="TK-CLI-001")
    how: dict[str, Any] = {name: getattr(like, name) for name in ("out_dtype", "bias", "activation", "padded")}
    return BlockwiseWorkload(like.m, like.n, like.k, **types, **how)


def described(
    family: Family, call: CallOptions, batch: int | None = None
) -> MatmulWorkload | ConvWorkload | AttentionWorkload:
    """Build the workload that options describe, and refuse those that are of the other kind of call."""
    from tilekit.errors import ArgumentError

    if call.extent is not None:
        legal = f"of a kernel of yours, FILE.py:NAME, which {family.name} is not"
        raise ArgumentError.of("--extent", call.extent, legal=legal, code="TK-CLI-013")
    if attends(family):
        return _heads(call, batch)
    for name in (*_OF_HEADS, *_OF_SEQUENCES):
        if getattr(call, name) not in (None, False):
            legal = f"of attention only, which {family.name} is not"
            raise ArgumentError.of(f"--{name.replace('_', '-')}", getattr(call, name), legal=legal, code="TK-CLI-001")
    convolved = takes_images(family)
    of_images = ("h", "w", "c", "r", "s", "stride", "padding", "dilation", "groups", "residual")
    foreign: dict[str, Any] = {name: getattr(call, name) for name in of_images}
    if convolved:
        foreign = {"m": call.m, "batch": batch, "contiguous": call.contiguous}
        majors = {"a_major": call.a_major, "b_major": call.b_major}
        foreign |= {name: major for name, major in majors.items() if major != "k"}
    for name, value in foreign.items():
        if value not in (None, False):
            legal = "of a product" if convolved else "of conv2d"
            legal = f"{legal} only, which {family.name} is not"
            raise ArgumentError.of(f"--{name.replace('_', '-')}", value, legal=legal, code="TK-CLI-001")
    return _images(call) if convolved else _product(family, call, batch)


def _product(family: Family, call: CallOptions, batch: int | None) -> MatmulWorkload:
    from tilekit.tile_op.block_scaled import FORMATS

    scaled = is_block_scaled(family)
    dtype = ("e4m3" if scaled else call.dtype) or "bf16"
    n, k = (
        given if given is not None else usual for given, usual in zip((call.n, call.k), call.usual[1:], strict=True)
    )
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
        return with_scales(plain, dtype)
    if not scaled:
        return plain
    from tilekit.bench.scaled import ScaledWorkload

    return ScaledWorkload.like(plain, call.dtype or "mxfp8", to)


_OF_HEADS = ("heads", "kv_heads", "queries", "keys", "head_dim", "causal", "window", "softcap")
_OF_SEQUENCES = ("lengths", "key_lengths", "page")


def _heads(call: CallOptions, batch: int | None) -> AttentionWorkload:
    from tilekit.bench.attention import AttentionWorkload
    from tilekit.bench.cached_attention import CachedAttentionWorkload
    from tilekit.bench.packed_attention import PackedAttentionWorkload
    from tilekit.dtypes import as_dtype

    own = {f"--{name.replace('_', '-')}" for name in (*_OF_HEADS, *_OF_SEQUENCES, "dtype", "target")}
    for option, value in ({**call.given, **{f"--{name}": extent for name, extent in call.extents.items()}}).items():
        if option not in own:
            refuse(option, value, "of another family than attention")
    taken = {"--batch": batch, "--keys": call.keys, "--queries": call.queries}
    if call.lengths is not None:
        for option, given in (*taken.items(), ("--key-lengths", call.key_lengths)):
            if given is not None:
                refuse(option, given, "of sequences of one length, without --lengths")
    if call.key_lengths is not None:
        for option in ("--batch", "--keys"):
            if taken[option] is not None:
                refuse(option, taken[option], "without --key-lengths, which says it")
    elif call.page is not None:
        refuse("--page", call.page, "with --key-lengths", "--key-lengths 300,50")
    heads, queries = 2 if call.heads is None else call.heads, 256 if call.queries is None else call.queries
    whole = AttentionWorkload(
        1 if batch is None else batch,
        queries,
        queries if call.keys is None else call.keys,
        heads,
        heads if call.kv_heads is None else call.kv_heads,
        64 if call.head_dim is None else call.head_dim,
        as_dtype(call.dtype or "bf16", "--dtype"),
        call.causal,
        None if call.window is None else _window(call.window),
        call.softcap,
    )
    if call.key_lengths is not None:
        return CachedAttentionWorkload.of(_lengths(call.key_lengths, "--key-lengths"), call.page or 0, whole)
    return whole if call.lengths is None else PackedAttentionWorkload.of(_lengths(call.lengths, "--lengths"), whole)


def _lengths(text: str, option: str) -> tuple[int, ...]:
    """Read whole numbers with commas between them."""
    if not re.fullmatch(r"\d{1,9}(,\d{1,9})*", text):
        refuse(option, text, "whole numbers with commas between them", "128,1,300")
    return tuple(int(length) for length in text.split(","))


def _window(text: str) -> tuple[int | None, int | None]:
    """Read ``L,R``, of which either may be left out."""
    found = re.fullmatch(r"(-?\d{1,9})?,(-?\d{1,9})?", text)
    if found is None:
        refuse("--window", text, "L,R: two whole numbers, of which either may be left out", "128,0")
    left, right = (None if one is None else int(one) for one in found.groups())
    return left, right


def _images(call: CallOptions) -> ConvWorkload:
    like = convolution_like(
        call.dtype or "bf16", call.out_dtype, call.bias, call.activation, call.accumulation, call.residual
    )
    h, r, c = (given if given is not None else usual for given, usual in ((call.h, 28), (call.r, 3), (call.c, 64)))
    w, s = h if call.w is None else call.w, r if call.s is None else call.s
    given = {"stride": call.stride, "padding": call.padding, "dilation": call.dilation}
    how: dict[str, Any] = {name: both(text, f"--{name}") for name, text in given.items() if text is not None}
    groups = 1 if call.groups is None else call.groups
    x, filters = (1 if call.n is None else call.n, h, w, c), (64 if call.k is None else call.k, r, s)
    return replace(like, x=x, filters=filters, groups=groups, target=call.target, **how)


def convolution_like(
    dtype: str,
    out_dtype: str | None,
    bias: bool = False,
    activation: str | None = None,
    accumulation: str = "fast",
    residual: bool = False,
) -> ConvWorkload:
    """Return a convolution of some shape of these types."""
    from tilekit.bench.conv2d import ConvWorkload

    like = workload_of((1, 1, 1), None, dtype, out_dtype, "k", "k", bias, activation, accumulation=accumulation)
    names = ("a_dtype", "b_dtype", "out_dtype", "bias", "activation", "accumulation")
    return ConvWorkload((1, 1, 1, 64), (64, 1, 1), residual=residual, **{name: getattr(like, name) for name in names})


def like_of(
    family: Family, dtype: str, out_dtype: str | None, a_major: str, b_major: str, accumulation: str
) -> MatmulWorkload | ConvWorkload | AttentionWorkload:
    """Return a workload of some shape whose types are those that shapes given in words have."""
    if attends(family):
        return attention_like(dtype, out_dtype, a_major, b_major, accumulation)
    if is_block_scaled(family):
        from tilekit.bench.scaled import ScaledWorkload

        plain = workload_of((1, 1, 2), None, "e4m3", out_dtype, a_major, b_major, accumulation=accumulation)
        return ScaledWorkload.like(plain, "mxfp8" if dtype == "bf16" else dtype)
    if takes_images(family):
        for option, major in (("--a-major", a_major), ("--b-major", b_major)):
            if major != "k":
                refuse(option, major, "of a product only, which conv2d is not", "k")
        return convolution_like(dtype, out_dtype, accumulation=accumulation)
    like = workload_of((1, 1, 1), None, dtype, out_dtype, a_major, b_major, contiguous=True, accumulation=accumulation)
    return with_scales(like, dtype) if is_blockwise(family) else like


def attention_like(
    dtype: str, out_dtype: str | None, a_major: str, b_major: str, accumulation: str
) -> AttentionWorkload:
    """Return attention of some shape of a type; what a product has besides is refused."""
    from tilekit.bench.attention import AttentionWorkload
    from tilekit.dtypes import as_dtype

    others = {"--a-major": (a_major, "k"), "--b-major": (b_major, "k"), "--accumulation": (accumulation, "fast")}
    for option, (given, usual) in ({"--out-dtype": (out_dtype, None)} | others).items():
        if given != usual:
            refuse(option, given, "of another family than attention", usual)
    return AttentionWorkload(dtype=as_dtype(dtype, "--dtype"))


def tuned_family(kernel: str) -> Family:
    """Return the kernel family of this name, of those that have configs to choose from."""
    from difflib import get_close_matches

    from tilekit.kernels.registry import families

    known = {name: family for name, family in families().items() if family.choices is not None}
    if kernel not in known:
        nearest = get_close_matches(kernel, known, n=1)
        refuse("KERNEL", kernel, ", ".join(known), nearest[0] if nearest else None)
    return known[kernel]


def chip_of(target: str | None) -> ChipName | None:
    """Check the name of a chip."""
    from tilekit.targets import target as chip_named

    return None if target is None else chip_named(target).name


def tuned_like(
    family: Family, dtype: str, out_dtype: str | None, a_major: str, b_major: str, accumulation: str
) -> Tunable:
    """Return a workload of some shape whose types are those that shapes of `tilekit tune` have."""
    from tilekit.bench.blockwise import GroupedBlockwiseWorkload
    from tilekit.bench.grouped import GroupedWorkload
    from tilekit.kernels.grouped.arguments import GroupedArguments

    if not issubclass(family.arguments, GroupedArguments):
        return like_of(family, dtype, out_dtype, a_major, b_major, accumulation)
    like = workload_of((1, 1, 1), None, dtype, out_dtype, a_major, b_major, accumulation=accumulation)
    if is_blockwise(family):
        scaled = with_scales(like, dtype)
        return GroupedBlockwiseWorkload((1,), 1, 1, dtype=scaled.a_dtype, out_dtype=scaled.out_dtype)
    if like.a_dtype is not like.b_dtype:
        refuse("--dtype", dtype, "one type: groups' operands have the same", like.a_dtype.name)
    types: dict[str, Any] = {"dtype": like.a_dtype, "out_dtype": like.out_dtype}
    return GroupedWorkload((1,), 1, 1, "spread", **types, a_major=like.a_major, b_major=like.b_major)


def both(text: str, option: str) -> tuple[int, int]:
    """Read a number for both axes, or ``DxA``: down and along."""
    return pair(text if "x" in text else f"{text}x{text}", option)


def target_of(family: Family, call: CallOptions) -> str:
    """What a family's kernel is built for: what the call says, else the usual target, or the family's first."""
    if call.target is not None:
        return call.target
    return DEFAULT_TARGET if DEFAULT_TARGET in family.targets else family.targets[0]


def config_of(
    workload: MatmulWorkload | ConvWorkload | AttentionWorkload, call: CallOptions, target: str
) -> KernelConfig | None:
    """Return the best config for a shape that has what the options say, after checking it; None if they say nothing."""
    from tilekit.bench.attention import AttentionWorkload
    from tilekit.kernels.matmul.picker import closest
    from tilekit.targets import target as chip_named

    if isinstance(workload, AttentionWorkload):
        return None  # no option says anything of its config

    chip, spec = chip_named(target), workload.spec
    given = {
        "tile": None if call.tile is None else pair(call.tile, "--tile"),
        "cluster": None if call.cluster is None else pair(call.cluster, "--cluster"),
        "cta_group": call.cta_group,
        "stages": call.stages,
        "schedule": call.schedule,
        "stream_k": call.stream_k,
        "driver": call.driver,
    }
    overrides: dict[str, Any] = {field: value for field, value in given.items() if value is not None}
    if not overrides:
        return None
    for field, value in overrides.items():
        _require_field(field, value, chip)
    if call.stream_k is not None:
        overrides["split_k"] = 1
    k = workload.k // spec.a_dtype.packed
    shape = {"m": workload.m, "n": workload.n, "k": k, "batches": workload.batch or 1}
    config = closest(spec, chip, overrides, **shape, read=workload.read)
    config.check(chip, spec)
    return config


def _require_field(field: str, value: object, chip: Target) -> None:
    """Check that the configs of a chip have a field that an option sets."""
    from tilekit.errors import ArgumentError
    from tilekit.kernels.matmul.platforms import having

    have = having(field)
    if chip.name not in have:
        legal = f"for {', '.join(have)} only: the configs of {chip.name} have no {field}"
        raise ArgumentError.of(f"--{field.replace('_', '-')}", value, legal=legal, code="TK-CLI-009")


def require_means(workload: MatmulWorkload | ConvWorkload | AttentionWorkload, emulated: bool) -> None:
    """Refuse what this machine has no memory for, or the emulator would take too long for, before arrays are made."""
    import os

    from tilekit.bench.attention import AttentionWorkload
    from tilekit.errors import ArgumentError
    from tilekit.runtime.emulated import Work

    if emulated:
        Work(workload.flops, 0).refuse_if_too_long(workload.label)
    scores = workload.score_bytes if isinstance(workload, AttentionWorkload) else 0
    needed = _HOST_BYTES * (workload.bytes + scores)
    held = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else needed
    if needed > held:
        raise ArgumentError(
            f"{workload.label}: operands, result and their check in float64 take "
            f"about {needed / 1e9:.3g} GB, and this machine has {held / 1e9:.3g} GB; make the problem smaller",
            code="TK-CLI-010",
        )


_HOST_BYTES: Final = 8
"""Bytes in float64 and beside it, by bytes of the operands and the result."""


def require_taken(
    family: Family,
    workload: MatmulWorkload | ConvWorkload | AttentionWorkload,
    target: str,
    config: KernelConfig | None,
) -> None:
    """Refuse a workload that the family declines, for its reason; the most general one takes them all."""
    from tilekit.errors import ArgumentError
    from tilekit.kernels.dispatch import offer
    from tilekit.kernels.family import Declined
    from tilekit.kernels.matmul.arguments import MatmulArguments
    from tilekit.kernels.registry import families

    if [one for one in families().values() if one.arguments is family.arguments][-1] is family:
        return
    a, b, keywords = call_of(workload, target, config)
    answer = offer(family, MatmulArguments.parse(a, b, memory=False, **keywords))
    if isinstance(answer, Declined):
        legal = f"matmul for this product, which {family.name} declines: {answer.reason}"
        raise ArgumentError.of("KERNEL", family.name, legal=legal, nearest="matmul", code="TK-CLI-001")


def problem_of(family: Family, text: str, like: Any) -> Any:
    """Read a shape that the family takes, as workloads like this one have them."""
    workload = like.parse(text, like)
    require_taken(family, workload, family.targets[0], None)
    return workload


def call_of(
    workload: MatmulWorkload | ConvWorkload | AttentionWorkload, target: str, config: KernelConfig | None
) -> tuple[Any, Any, dict[str, Any]]:
    """Return what a workload's function is called with: layouts, not arrays."""
    import numpy as np

    from tilekit.bench.attention import AttentionWorkload
    from tilekit.bench.workload import Operands

    if isinstance(workload, AttentionWorkload):
        q, k, options = workload.call(workload.layouts)
        return q, k, options | {"config": config, "target": target}
    a, b, out = workload.views
    bias = np.zeros(out.shape[-1], np.float32) if workload.bias else None
    a, b, keywords = workload.call(Operands(a, b, bias, out if workload.residual else None))
    result = {"out": out} if (to := quantised_to(workload)) is None else {"out_dtype": to}
    return a, b, keywords | result | {"config": config, "target": target}


def quantised_to(workload: MatmulWorkload | ConvWorkload | AttentionWorkload) -> str | None:
    """The format of a result that is quantised, whose call returns values and scales."""
    from tilekit.bench.scaled import ScaledWorkload

    return workload.out_scaled if isinstance(workload, ScaledWorkload) else None


def functions_of(workload: MatmulWorkload | ConvWorkload | AttentionWorkload) -> tuple[Any, Any]:
    """Return what computes a workload, and what says with which kernel."""
    import tilekit
    from tilekit.bench.attention import AttentionWorkload
    from tilekit.bench.blockwise import BlockwiseWorkload
    from tilekit.bench.scaled import ScaledWorkload
    from tilekit.bench.workload import MatmulWorkload

    if isinstance(workload, AttentionWorkload):
        return tilekit.attention, tilekit.attention_kernel_for
    if isinstance(workload, BlockwiseWorkload | ScaledWorkload):
        return tilekit.scaled_matmul, tilekit.scaled_kernel_for
    if isinstance(workload, MatmulWorkload):
        return tilekit.matmul, tilekit.kernel_for
    return tilekit.conv2d, tilekit.conv2d_kernel_for


def kernel_of(
    workload: MatmulWorkload | ConvWorkload | AttentionWorkload, target: str, config: KernelConfig | None
) -> Any:
    """Return the kernel that is taken for a workload, with a config of one's own where there is one."""
    a, b, keywords = call_of(workload, target, config)
    return functions_of(workload)[1](a, b, **keywords)


def part_of(text: str | None) -> tuple[int, int] | None:
    """Read ``I/N``: part I of N."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d{1,18})/(\d{1,18})", text)
    if found is None:
        refuse("--part", text, "I/N, such as 1/4", "1/4")
    return int(found[1]), int(found[2])


def pair(text: str, option: str) -> tuple[int, int]:
    """Read ``MxN``."""
    from tilekit.errors import ArgumentError

    found = re.fullmatch(r"(\d{1,18})x(\d{1,18})", text)
    if found is None:
        numbers = re.findall(r"\d+", text)
        nearest = "x".join(numbers) if len(numbers) == 2 else None
        raise ArgumentError.of(option, text, legal="two whole numbers as MxN", nearest=nearest, code="TK-CLI-002")
    return int(found[1]), int(found[2])
