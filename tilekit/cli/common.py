"""What the commands share: exit codes, how an error looks, the options that describe a matmul, and tables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn, cast

import typer

if TYPE_CHECKING:
    from tilekit.bench.blockwise import BlockwiseWorkload
    from tilekit.bench.conv2d import ConvWorkload
    from tilekit.bench.workload import MatmulWorkload
    from tilekit.epilogue.functions import Activation as ActivationName
    from tilekit.kernels.family import Family
    from tilekit.kernels.matmul.config import KernelConfig
    from tilekit.kernels.matmul.spec import Accumulation
    from tilekit.targets import Target
    from tilekit.tiles.call import Major

OK: Final = 0
WRONG: Final = 1
USAGE: Final = 2
MISSING: Final = 3

Kernel = Annotated[str, typer.Argument(metavar="KERNEL", help="The kernel family; `tilekit list` shows them.")]
Dtype = Annotated[
    str,
    typer.Option(
        help="Operand type: bf16, f16, e4m3 or e5m2, two as 'e4m3,e5m2' for A and B; tf32 for f32 operands of which "
        "tensor cores read 10 bits of mantissa."
    ),
]
FamilyDtype = Annotated[
    str | None,
    typer.Option(
        help="Operand type: bf16, f16, e4m3 or e5m2, two as 'e4m3,e5m2' for A and B; tf32 for f32 operands of which "
        "tensor cores read 10 bits of mantissa. Of block_scaled: mxfp8, mxfp4 or nvfp4. Default: bf16, mxfp8."
    ),
]
OutDtype = Annotated[
    str | None,
    typer.Option(help="Result type: bf16, f16, f32, e4m3, e5m2. Default: the operands', bf16 for 8-bit ones."),
]
AMajor = Annotated[str, typer.Option(help="Contiguous dimension of A: k, or mn for a transposed A.")]
BMajor = Annotated[str, typer.Option(help="Contiguous dimension of B: k (an (N, K) array transposed), or mn.")]
AccumulationMode = Annotated[
    str,
    typer.Option(help="Sums of 8-bit products on sm_90a: fast, or promoted (128 products at a time are added in f32)."),
]
Bias = Annotated[bool, typer.Option("--bias", help="Add a float32 vector of N values.")]
Activation = Annotated[str | None, typer.Option(help="relu, gelu (tanh form) or silu, applied last.")]
Contiguous = Annotated[
    bool,
    typer.Option(
        "--contiguous",
        help="Operands without padding. Otherwise rows begin at multiples of 16 bytes, as TMA needs them; without, "
        "threads copy what TMA refuses.",
    ),
]
DEFAULT_TARGET = "sm_90a"
"""That of `tilekit.targets.DEFAULT`, said again because `--help` imports no targets."""

TargetName = Annotated[str, typer.Option(help="Architecture to build for.")]
Tile = Annotated[
    str | None, typer.Option(metavar="MxN", help="Output tile of a CTA, for example 128x256. Default: chosen by shape.")
]
Cluster = Annotated[str | None, typer.Option(metavar="MxN", help="CTAs of a cluster along M and N, for example 2x1.")]
CtaGroup = Annotated[
    int | None, typer.Option(help="CTAs of a matrix instruction on sm_100a: 1, or 2 for CTA pairs. Default: chosen.")
]
ScheduleName = Annotated[
    str | None,
    typer.Option(
        "--schedule",
        help="Of the consumers on sm_90a: cooperative, each with a part of every tile, or pingpong, with whole tiles. "
        "Default: chosen.",
    ),
]
StreamK = Annotated[
    int | None,
    typer.Option(
        help="On sm_90a, have all CTAs share the tiles of the last wave or two, each with an equal range of their "
        "k-blocks: so many ranges of a tile at most, 0 for none. Default: none."
    ),
]
Stages = Annotated[int | None, typer.Option(help="Stages of the input ring. Default: what shared memory allows.")]
Height = Annotated[int | None, typer.Option("--h", help="Of conv2d: lines of an image. Default: 28.")]
Width = Annotated[int | None, typer.Option("--w", help="Of conv2d: pixels of a line. Default: as many as lines.")]
Channels = Annotated[int | None, typer.Option("--c", help="Of conv2d: channels of an image. Default: 64.")]
TapsDown = Annotated[int | None, typer.Option("--r", help="Of conv2d: lines of a filter. Default: 3.")]
TapsAlong = Annotated[int | None, typer.Option("--s", help="Of conv2d: places of its line. Default: as many as lines.")]
Stride = Annotated[str | None, typer.Option(metavar="N|DxA", help="Of conv2d: pixels, or down and along. Default: 1.")]
Padding = Annotated[
    str | None, typer.Option(metavar="N|DxA", help="Of conv2d: zeros at either end, or down and along. Default: 0.")
]
Dilation = Annotated[str | None, typer.Option(metavar="N|DxA", help="Of conv2d: pixels between taps. Default: 1.")]
GroupCount = Annotated[int | None, typer.Option("--groups", help="Of conv2d: groups of channels. Default: 1.")]
Residual = Annotated[bool, typer.Option("--residual", help="Of conv2d: add an array like the result.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]


@contextmanager
def presented(as_json: bool = False) -> Iterator[None]:
    """Turn the errors that tilekit raises on purpose into one message and the exit code of their kind."""
    from tilekit.errors import ArgumentError, DriverError

    try:
        yield
    except MemoryError as error:
        why = DriverError(f"this machine has not enough memory: {error}", code="TK-CLI-010")
        fail(why, MISSING, as_json)
    except BrokenPipeError:
        raise  # stdout, whose reader has gone
    except OSError as error:
        fail(ArgumentError(f"a file cannot be read or written: {error}", code="TK-CLI-011"), USAGE, as_json)
    except Exception as error:
        exit_code = _exit_code(error)
        if exit_code is None:
            raise
        fail(error, exit_code, as_json)


def _exit_code(error: Exception) -> int | None:
    """Return the exit code of an error's kind; None for what no one raised on purpose."""
    from tilekit import errors
    from tilekit.emulator import EmulatorError

    if isinstance(error, errors.KernelFault | EmulatorError):
        return WRONG
    if isinstance(error, errors.ArgumentError | errors.ConfigError | errors.EmulationTooLong):
        return USAGE
    if isinstance(error, errors.AssemblerNotFound | errors.DriverError):
        return MISSING
    return WRONG if isinstance(error, errors.TilekitError) else None


def fail(error: Exception, exit_code: int, as_json: bool) -> NoReturn:
    """Print an error, in red on stderr or as a JSON object on stdout, and exit."""
    from tilekit.cli.words import in_options
    from tilekit.errors import EmulationTooLong

    code = getattr(error, "code", type(error).__name__)
    message = in_options(getattr(error, "message", str(error)))
    if isinstance(error, EmulationTooLong) and error.facts:
        limit = f"TILEKIT_EMULATOR_LIMIT={2 * error.seconds:.0f}"
        message = f"{error.facts}. Make the problem smaller, or allow it in the environment: {limit}"
    if as_json:
        typer.echo(json.dumps({"error": message, "code": code, "exit": exit_code}))
    else:
        typer.secho(f"error [{code}]", fg="red", bold=True, err=True)
        typer.secho(message, fg="red", err=True)
    raise typer.Exit(exit_code)


def product_family(kernel: str) -> Family:
    """Return the kernel family of this name, of those whose calls options describe: products and convolutions."""
    from tilekit.errors import ArgumentError
    from tilekit.kernels.block_scaled.arguments import BlockScaledArguments
    from tilekit.kernels.blockwise.arguments import BlockwiseArguments
    from tilekit.kernels.conv2d.arguments import ConvArguments
    from tilekit.kernels.matmul.arguments import MatmulArguments
    from tilekit.kernels.registry import families

    known = families()
    described = (MatmulArguments, ConvArguments, BlockScaledArguments, BlockwiseArguments)
    products = [family.name for family in known.values() if family.arguments in described]
    if kernel not in products:
        import difflib

        nearest = difflib.get_close_matches(kernel, products, n=1)
        legal = ", ".join(products)
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


def is_blockwise(family: Family) -> bool:
    """Whether a family's calls are products with scales of blocks."""
    from tilekit.kernels.blockwise.arguments import BlockwiseArguments

    return family.arguments is BlockwiseArguments


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
    family: Family,
    usual: tuple[int, int, int],
    product: Mapping[str, Any],
    images: Mapping[str, Any],
    *,
    dtype: str | None,
    out_dtype: str | None,
    bias: bool,
    activation: str | None,
    accumulation: str,
) -> MatmulWorkload | ConvWorkload:
    """Build the workload that options describe, and refuse those that are of the other kind of call.

    Parameters
    ----------
    family, usual
        Which kernels compute it, and extents of a product where none are given.
    product
        ``m``, ``n``, ``k``, ``batch``, ``a_major``, ``b_major`` and ``contiguous``.
    images
        ``h``, ``w``, ``c``, ``r``, ``s``, ``stride``, ``padding``, ``dilation``, ``groups`` and ``residual``.
    """
    from tilekit.errors import ArgumentError

    convolved = takes_images(family)
    foreign = {name: product[name] for name in ("m", "batch", "contiguous")} if convolved else dict(images)
    if convolved:
        foreign |= {name: product[name] for name in ("a_major", "b_major") if product[name] != "k"}
    for name, value in foreign.items():
        if value not in (None, False):
            legal = "of a product" if convolved else "of conv2d"
            legal = f"{legal} only, which {family.name} is not"
            raise ArgumentError.of(f"--{name.replace('_', '-')}", value, legal=legal, code="TK-CLI-001")
    n, k = product["n"], product["k"]
    scaled = is_block_scaled(family)
    wanted, dtype = dtype or "mxfp8", ("e4m3" if scaled else dtype) or "bf16"
    if not convolved:
        shape = rows_of(family, product["m"], usual[0]), usual[1] if n is None else n, usual[2] if k is None else k
        majors = product["a_major"], product["b_major"]
        batch, contiguous = product["batch"], product["contiguous"]
        plain = workload_of(shape, batch, dtype, out_dtype, *majors, bias, activation, contiguous, accumulation)
        if is_blockwise(family):
            return with_scales(plain, dtype)
        if not scaled:
            return plain
        from tilekit.bench.scaled import ScaledWorkload

        return ScaledWorkload.like(plain, wanted)
    like = convolution_like(dtype, out_dtype, bias, activation, accumulation, images["residual"])
    h, r, c = (images[name] if images[name] is not None else value for name, value in (("h", 28), ("r", 3), ("c", 64)))
    w, s = h if images["w"] is None else images["w"], r if images["s"] is None else images["s"]
    how: dict[str, Any] = {
        name: both(images[name], f"--{name}") for name in ("stride", "padding", "dilation") if images[name] is not None
    }
    groups = 1 if images["groups"] is None else images["groups"]
    x, filters = (1 if n is None else n, h, w, c), (64 if k is None else k, r, s)
    return replace(like, x=x, filters=filters, groups=groups, **how)


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
) -> MatmulWorkload | ConvWorkload:
    """Return a workload of some shape whose types are those that shapes given in words have."""
    if is_block_scaled(family):
        refuse("KERNEL", family.name, "a product or conv2d: this family is run, dumped and traced", "matmul")
    if takes_images(family):
        for option, major in (("--a-major", a_major), ("--b-major", b_major)):
            if major != "k":
                refuse(option, major, "of a product only, which conv2d is not", "k")
        return convolution_like(dtype, out_dtype, accumulation=accumulation)
    like = workload_of((1, 1, 1), None, dtype, out_dtype, a_major, b_major, contiguous=True, accumulation=accumulation)
    return with_scales(like, dtype) if is_blockwise(family) else like


def both(text: str, option: str) -> tuple[int, int]:
    """Read a number for both axes, or ``DxA``: down and along."""
    return pair(text if "x" in text else f"{text}x{text}", option)


def config_of(
    workload: MatmulWorkload | ConvWorkload,
    target: str,
    tile: str | None,
    cluster: str | None,
    cta_group: int | None = None,
    stages: int | None = None,
    schedule: str | None = None,
    stream_k: int | None = None,
) -> KernelConfig | None:
    """Return the best config for a shape that has what the options say, after checking it; None if they say nothing."""
    from tilekit.kernels.matmul.picker import closest
    from tilekit.targets import target as chip_named

    chip, spec = chip_named(target), workload.spec
    given = {
        "tile": None if tile is None else pair(tile, "--tile"),
        "cluster": None if cluster is None else pair(cluster, "--cluster"),
        "cta_group": cta_group,
        "stages": stages,
        "schedule": schedule,
        "stream_k": stream_k,
    }
    overrides: dict[str, Any] = {field: value for field, value in given.items() if value is not None}
    if not overrides:
        return None
    for field, value in overrides.items():
        _require_field(field, value, chip)
    if stream_k is not None:
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


def require_means(workload: MatmulWorkload | ConvWorkload, emulated: bool) -> None:
    """Refuse what this machine has no memory for, or the emulator would take too long for, before arrays are made."""
    import os

    from tilekit.errors import ArgumentError
    from tilekit.runtime.emulated import Work

    if emulated:
        Work(workload.flops, 0).refuse_if_too_long(workload.label)
    needed = _HOST_BYTES * workload.bytes
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
    family: Family, workload: MatmulWorkload | ConvWorkload, target: str, config: KernelConfig | None
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
    workload: MatmulWorkload | ConvWorkload, target: str, config: KernelConfig | None
) -> tuple[Any, Any, dict[str, Any]]:
    """Return what a workload's function is called with: layouts, not arrays."""
    import numpy as np

    from tilekit.bench.workload import Operands

    a, b, out = workload.views
    bias = np.zeros(out.shape[-1], np.float32) if workload.bias else None
    a, b, keywords = workload.call(Operands(a, b, bias, out if workload.residual else None))
    return a, b, keywords | {"out": out, "config": config, "target": target}


def functions_of(workload: MatmulWorkload | ConvWorkload) -> tuple[Any, Any]:
    """Return what computes a workload, and what says with which kernel."""
    import tilekit
    from tilekit.bench.blockwise import BlockwiseWorkload
    from tilekit.bench.scaled import ScaledWorkload
    from tilekit.bench.workload import MatmulWorkload

    if isinstance(workload, BlockwiseWorkload | ScaledWorkload):
        return tilekit.scaled_matmul, tilekit.scaled_kernel_for
    if isinstance(workload, MatmulWorkload):
        return tilekit.matmul, tilekit.kernel_for
    return tilekit.conv2d, tilekit.conv2d_kernel_for


def kernel_of(workload: MatmulWorkload | ConvWorkload, target: str, config: KernelConfig | None) -> Any:
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


def refuse(option: str, given: object, legal: str, nearest: str | None = None) -> NoReturn:
    """Raise what is wrong with an option of the commands that measure."""
    from tilekit.errors import ArgumentError

    raise ArgumentError.of(option, given, legal=legal, nearest=nearest, code="TK-BENCH-003")


def pair(text: str, option: str) -> tuple[int, int]:
    """Read ``MxN``."""
    from tilekit.errors import ArgumentError

    found = re.fullmatch(r"(\d{1,18})x(\d{1,18})", text)
    if found is None:
        numbers = re.findall(r"\d+", text)
        nearest = "x".join(numbers) if len(numbers) == 2 else None
        raise ArgumentError.of(option, text, legal="two whole numbers as MxN", nearest=nearest, code="TK-CLI-002")
    return int(found[1]), int(found[2])


def print_facts(title: str, facts: Mapping[str, Any]) -> None:
    """Print a table of names and values within the terminal's columns, or 80; no line ends in spaces."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", title_style="bold", show_header=False, box=None, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(name, value if isinstance(value, Text) else Text(str(value)))  # Text: no markup, `[cuda]` stays
    console = Console()
    with console.capture() as capture:
        console.print(table)
    typer.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))


def columns() -> int:
    """Columns of the terminal; 80 where there is none."""
    import shutil

    return max(40, shutil.get_terminal_size((80, 24)).columns)


def fitted(text: str, indent: int) -> str:
    """Return the text with lines that are wider than the terminal broken between words, their rests indented."""
    import textwrap

    rest, most = " " * indent, columns()
    lines = (
        textwrap.wrap(line, most, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False)
        if len(line) > most
        else [line]
        for line in text.splitlines()
    )
    return "\n".join(one for parts in lines for one in parts)


def wrapped(name: str, value: object, width: int) -> str:
    """Return a row of a name, padded to a width, and a value that is broken between words where the terminal ends."""
    import textwrap

    indent = "  " + " " * width + "  "
    lines = textwrap.wrap(str(value), columns() - len(indent), break_long_words=False, break_on_hyphens=False) or [""]
    return f"  {name:<{width}}  " + f"\n{indent}".join(lines)
