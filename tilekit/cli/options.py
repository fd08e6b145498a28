"""The options that describe a call and a config, said once: each command that takes them has one parameter for all."""

from __future__ import annotations

import copy
import functools
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

import typer
from typer.models import OptionInfo

Kernel = Annotated[
    str,
    typer.Argument(
        metavar="KERNEL",
        help="The kernel family, of those that `tilekit list` shows; or FILE.py:NAME, a composed kernel of yours.",
    ),
]
Dtype = Annotated[
    str | None,
    typer.Option(
        help="Operand type: bf16, f16, e4m3 or e5m2 (gfx942: e4m3fnuz, e5m2fnuz), two as 'e4m3,e5m2' for A and B; "
        "int8; tf32 for f32 operands of which tensor cores read 10 bits of mantissa. Of block_scaled: mxfp8, mxfp4 or "
        "nvfp4. Default: bf16; of block_scaled mxfp8, of blockwise and grouped_blockwise e4m3."
    ),
]
OutDtype = Annotated[
    str | None,
    typer.Option(
        help="Result type: bf16, f16, f32, e4m3, e5m2; of int8 int32, bf16, f16 or f32. Default: the operands', bf16 "
        "for 8-bit floats, int32 for int8. Of block_scaled also mxfp8, mxfp4 or nvfp4, scales made by the kernel."
    ),
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

TargetName = Annotated[
    str | None,
    typer.Option(help=f"Architecture to build for. Default: {DEFAULT_TARGET}, or the first that KERNEL is built for."),
]
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
DriverName = Annotated[
    str | None,
    typer.Option(
        "--driver",
        help="Role loops. On AMD's chips: warp_specialized, or all waves load and multiply, ping_pong or interleaved; "
        "on sm_80 to sm_89 multistage, on sm_120a also warp_specialized. Default: chosen.",
    ),
]
Stages = Annotated[int | None, typer.Option(help="Stages of the input ring. Default: what shared memory allows.")]
Height = Annotated[int | None, typer.Option("--h", help="Lines of an image. Default: 28.")]
Width = Annotated[int | None, typer.Option("--w", help="Pixels of a line. Default: as many as lines.")]
Channels = Annotated[int | None, typer.Option("--c", help="Channels of an image. Default: 64.")]
TapsDown = Annotated[int | None, typer.Option("--r", help="Lines of a filter. Default: 3.")]
TapsAlong = Annotated[int | None, typer.Option("--s", help="Places of its line. Default: as many as lines.")]
Stride = Annotated[str | None, typer.Option(metavar="N|DxA", help="Pixels, or down and along. Default: 1.")]
Padding = Annotated[
    str | None, typer.Option(metavar="N|DxA", help="Zeros at either end, or down and along. Default: 0.")
]
Dilation = Annotated[str | None, typer.Option(metavar="N|DxA", help="Pixels between taps. Default: 1.")]
GroupCount = Annotated[int | None, typer.Option("--groups", help="Groups of channels. Default: 1.")]
Residual = Annotated[bool, typer.Option("--residual", help="Add an array like the result.")]

Sizes = Annotated[
    str | None,
    typer.Option(metavar="N,N,…", help="Rows of each group; one may have none. Default: 100,0,37,175."),
]
Room = Annotated[
    int | None,
    typer.Option(help="Rows that there is room for in each group, which is then counted. Default: groups touch."),
]

Extents = Annotated[
    str | None,
    typer.Option(
        "--extent",
        metavar="V=N,…",
        help="Of a composed kernel: extents by the letters of its operands, such as v=50,j=8. Default: 64.",
    ),
]
Heads = Annotated[int | None, typer.Option(help="Heads of queries. Default: 2.")]
KvHeads = Annotated[int | None, typer.Option(help="Heads of keys. Default: as many as of queries.")]
Queries = Annotated[int | None, typer.Option(help="Queries of a head. Default: 256.")]
Keys = Annotated[int | None, typer.Option(help="Keys of a head. Default: as many as queries.")]
HeadDim = Annotated[int | None, typer.Option(help="Elements of a head. Default: 64.")]
Causal = Annotated[bool, typer.Option("--causal", help="No query sees keys behind its own.")]
Window = Annotated[
    str | None,
    typer.Option(metavar="L,R", help="Keys before and after its own that a query sees; all without."),
]
Lengths = Annotated[
    str | None,
    typer.Option(metavar="N,N,…", help="Queries, and as many keys, of each of several packed sequences."),
]
KeyLengths = Annotated[str | None, typer.Option(metavar="N,N,…", help="Keys in use of each batch entry, of a cache.")]
Page = Annotated[int | None, typer.Option(help="With --key-lengths: keys of a block of the cache. Default: one array.")]
SoftCap = Annotated[float | None, typer.Option(help="Bound of scores.")]


@dataclass(frozen=True)
class CallOptions:
    """What the command line says of a call and of its kernel; None where it says nothing.

    Attributes
    ----------
    usual
        M, N and K of a product where none are given.
    """

    usual: tuple[int, int, int]
    m: Annotated[int | None, typer.Option(help="Rows of A and of the result. Default: {0}, or what the family takes.")]
    n: Annotated[int | None, typer.Option(help="Columns of B and of the result. Default: {1}. Of conv2d: images, 1.")]
    k: Annotated[int | None, typer.Option(help="Columns of A, rows of B. Default: {2}. Of conv2d: filters, 64.")]
    extent: Extents
    dtype: Dtype
    out_dtype: OutDtype
    a_major: AMajor
    b_major: BMajor
    bias: Bias
    activation: Activation
    contiguous: Contiguous
    accumulation: AccumulationMode
    h: Height
    w: Width
    c: Channels
    r: TapsDown
    s: TapsAlong
    stride: Stride
    padding: Padding
    dilation: Dilation
    groups: GroupCount
    residual: Residual
    sizes: Sizes
    room: Room
    heads: Heads
    kv_heads: KvHeads
    queries: Queries
    keys: Keys
    head_dim: HeadDim
    causal: Causal
    window: Window
    softcap: SoftCap
    lengths: Lengths
    key_lengths: KeyLengths
    page: Page
    target: TargetName
    tile: Tile
    cluster: Cluster
    cta_group: CtaGroup
    stages: Stages
    schedule: ScheduleName
    stream_k: StreamK
    driver: DriverName

    @property
    def given(self) -> dict[str, Any]:
        """What is said of a call beside its extents, by option."""
        unset: dict[str, Any] = {**_DEFAULTS, **dict.fromkeys(("bias", "contiguous", "residual", "causal"), False)}
        names = [one.name for one in fields(self) if one.name not in ("usual", "m", "n", "k", "extent")]
        values = {name: getattr(self, name) for name in names if getattr(self, name) != unset.get(name)}
        return {f"--{name.replace('_', '-')}": value for name, value in values.items()}

    @property
    def extents(self) -> dict[str, int]:
        """Those that are given, by letter."""
        given = {"m": self.m, "n": self.n, "k": self.k}
        return {letter: extent for letter, extent in given.items() if extent is not None} | lettered(self.extent)


def lettered(text: str | None) -> dict[str, int]:
    """Read extents by letters: ``v=50,j=8``.

    Raises
    ------
    ArgumentError
        ``TK-CLI-013`` for what is no such list.
    """
    from tilekit.errors import ArgumentError

    if text is None:
        return {}
    if not re.fullmatch(r"[a-z]=\d{1,9}(,[a-z]=\d{1,9})*", text):
        legal = "a letter and a number, with commas between several"
        raise ArgumentError.of("--extent", text, legal=legal, nearest="v=50,j=8", code="TK-CLI-013")
    return {letter: int(extent) for letter, _, extent in (part.partition("=") for part in text.split(","))}


_DEFAULTS: dict[str, Any] = {"a_major": "k", "b_major": "k", "accumulation": "fast"}
"""Of options that are always there; flags are not set, and of others None says that nothing was given."""


OF_IMAGES: Final = ("h", "w", "c", "r", "s", "stride", "padding", "dilation", "groups", "residual")
"""Options of convolutions alone."""

OF_GROUPS: Final = ("sizes", "room")
"""Options of groups of rows alone."""

OF_ATTENTION: Final = (
    *("heads", "kv_heads", "queries", "keys", "head_dim", "causal", "window", "softcap"),
    *("lengths", "key_lengths", "page"),
)
"""Options of attention alone: of heads, of what they see, and of several sequences."""

_PANELS = {
    "conv2d": OF_IMAGES,
    "grouped_matmul and grouped_blockwise": OF_GROUPS,
    "attention": OF_ATTENTION,
    "the config": ("tile", "cluster", "cta_group", "stages", "schedule", "stream_k", "driver"),
}
"""Options that `--help` shows apart, by what they are of."""

_BY_NAME = inspect.Parameter.KEYWORD_ONLY


def describes_a_call(*usual: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command all options of a call, of so many rows, columns and k where it has none, for its ``call``."""

    def extended(command: Callable[..., None]) -> Callable[..., None]:
        options = [_option(field.name, hint, usual) for field, hint in _hints() if field.name != "usual"]
        signature = inspect.signature(command, eval_str=True)
        parameters: list[inspect.Parameter] = []
        for parameter in signature.parameters.values():
            parameters += options if parameter.annotation is CallOptions else [parameter.replace(kind=_BY_NAME)]

        @functools.wraps(command)
        def run(**given: Any) -> None:
            call = CallOptions(usual, **{option.name: given.pop(option.name) for option in options})  # type: ignore[arg-type]
            command(call=call, **given)

        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return extended


def _hints() -> list[tuple[Any, Any]]:
    hints = get_type_hints(CallOptions, include_extras=True)
    return [(field, hints[field.name]) for field in fields(CallOptions)]


def _option(name: str, hint: Any, usual: tuple[int, ...]) -> inspect.Parameter:
    """Return the command's parameter for a field, with the usual extents in its help, in its panel."""
    assert get_origin(hint) is Annotated
    kind, option = get_args(hint)
    assert isinstance(option, OptionInfo)
    option = copy.copy(option)
    if name in ("m", "n", "k"):
        option.help = str(option.help).format(*usual)
    option.rich_help_panel = next((f"Options of {panel}" for panel, names in _PANELS.items() if name in names), None)
    default = _DEFAULTS.get(name, False if kind is bool else None)
    return inspect.Parameter(name, _BY_NAME, default=default, annotation=Annotated[kind, option])
