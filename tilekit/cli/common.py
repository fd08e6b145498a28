"""What the commands share: exit codes, how an error looks, the options that describe a matmul, and tables."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn, cast

import typer

if TYPE_CHECKING:
    from tilekit.arrays import ArrayView
    from tilekit.bench.workload import MatmulWorkload
    from tilekit.epilogue.functions import Activation as ActivationName
    from tilekit.kernels.compiled import CompiledKernel
    from tilekit.kernels.family import Family
    from tilekit.kernels.matmul.arguments import MatmulKeywords
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
    code = getattr(error, "code", type(error).__name__)
    message = getattr(error, "message", str(error))
    if as_json:
        typer.echo(json.dumps({"error": message, "code": code, "exit": exit_code}))
    else:
        typer.secho(f"error [{code}]", fg="red", bold=True, err=True)
        typer.secho(message, fg="red", err=True)
    raise typer.Exit(exit_code)


def product_family(kernel: str) -> Family:
    """Return the kernel family of this name, of those whose calls the options of a product describe."""
    from tilekit.errors import ArgumentError
    from tilekit.kernels.matmul.arguments import MatmulArguments
    from tilekit.kernels.registry import families

    known = families()
    products = [family.name for family in known.values() if family.arguments is MatmulArguments]
    if kernel not in products:
        import difflib

        nearest = difflib.get_close_matches(kernel, products, n=1)
        legal = ", ".join(products)
        if kernel in known:
            legal += f"; {kernel} runs from Python, as tilekit.{kernel}, and in `tilekit bench --suite`"
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
    from tilekit.dtypes import BF16, as_dtype
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
    default = a_dtype if a_dtype.bits > 8 else BF16
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


def config_of(
    workload: MatmulWorkload,
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
    shape = {"m": workload.m, "n": workload.n, "k": workload.k, "batches": workload.batch or 1}
    config = closest(spec, chip, overrides, **shape)
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


def require_means(workload: MatmulWorkload, emulated: bool) -> None:
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
            f"--m {workload.m} --n {workload.n} --k {workload.k}: operands, result and their check in float64 take "
            f"about {needed / 1e9:.3g} GB, and this machine has {held / 1e9:.3g} GB; make the problem smaller",
            code="TK-CLI-010",
        )


_HOST_BYTES: Final = 8
"""Bytes in float64 and beside it, by bytes of the operands and the result."""


def require_taken(family: Family, workload: MatmulWorkload, target: str, config: KernelConfig | None) -> None:
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


def product_of(family: Family, text: str, like: MatmulWorkload) -> MatmulWorkload:
    """Read ``MxNxK`` or ``BxMxNxK``, a shape that the family takes."""
    workload = like.parse(text, like)
    require_taken(family, workload, family.targets[0], None)
    return workload


def call_of(
    workload: MatmulWorkload, target: str, config: KernelConfig | None
) -> tuple[ArrayView, ArrayView, MatmulKeywords]:
    """Return what `tilekit.matmul` is called with for a workload: layouts, not arrays."""
    import numpy as np

    a, b, out = workload.views
    keywords: MatmulKeywords = {
        "out": out,
        "bias": np.zeros(workload.n, np.float32) if workload.bias else None,
        "activation": workload.activation,
        "precision": workload.precision,
        "accumulation": workload.accumulation,
        "config": config,
        "target": target,
    }
    return a, b, keywords


def kernel_of(workload: MatmulWorkload, target: str, config: KernelConfig | None) -> CompiledKernel:
    """Return the kernel that `tilekit.matmul` takes for a workload, with a config of one's own where there is one."""
    import tilekit

    a, b, keywords = call_of(workload, target, config)
    return tilekit.kernel_for(a, b, **keywords)


@dataclass(frozen=True)
class Ranking:
    """Every config that a kernel's family chooses from for a shape, and those that only tuning tries, best first.

    Attributes
    ----------
    estimates, others
        Those that are chosen from, and those of tuning.
    units
        What the figures of an estimate are.
    table
        Prints estimates.
    """

    estimates: Sequence[Any]
    others: Sequence[Any]
    units: Mapping[str, str]
    table: Callable[[Sequence[Any]], str]

    def text(self) -> str:
        """The tables, and a legend behind them."""
        lines = [self.table(self.estimates)]
        if self.others:
            lines += ["", "Only `tilekit tune` tries these:", self.table(self.others)]
        width = max(map(len, self.units))
        return "\n".join([*lines, "", *(f"{name:<{width}}  {unit}" for name, unit in self.units.items())])

    def facts(self) -> dict[str, Any]:
        """The same as JSON takes it."""
        return {
            "units": dict(self.units),
            "configs": [self._row(estimate) for estimate in self.estimates],
            "tuning": [self._row(estimate) for estimate in self.others],
        }

    def _row(self, estimate: Any) -> dict[str, Any]:
        # Figures come from NumPy too.
        figures = {name: float(getattr(estimate, name)) for name in self.units}
        return {"config": str(estimate.config), **figures}


def ranking_of(kernel: CompiledKernel, workload: MatmulWorkload, top: int | None = None) -> Ranking:
    """Return the ranking for a workload, of each part the first `top`."""
    from tilekit.kernels.gemv import picker as gemv
    from tilekit.kernels.gemv.compiled import GemvKernel
    from tilekit.kernels.matmul import estimates
    from tilekit.kernels.matmul.picker import ranked

    if isinstance(kernel, GemvKernel):
        common = gemv.ranked(kernel.spec, kernel.target, n=workload.n, k=workload.k)
        return Ranking(common[:top], (), gemv.RANKING_UNITS, gemv.ranking)
    shape = {"m": workload.m, "n": workload.n, "k": workload.k, "batches": workload.batch or 1}
    first, others = (ranked(workload.spec, kernel.target, **shape, tuning=which)[:top] for which in (False, True))
    return Ranking(first, others, estimates.RANKING_UNITS, estimates.ranking)


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
    """Print a table of names and values."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", title_style="bold", show_header=False, box=None, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(name, value if isinstance(value, Text) else Text(str(value)))  # Text: no markup, `[cuda]` stays
    Console().print(table)
