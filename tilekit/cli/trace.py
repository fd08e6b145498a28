"""``tilekit trace``: when each role of a kernel worked on each tile, as the kernel itself notes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilekit.cli import common
from tilekit.cli.progress import progress_bar
from tilekit.cli.run import choose_place

if TYPE_CHECKING:
    from tilekit.runtime.trace import TileTrace


_BUILT_IN = ("activation", "precision", "accumulation")
"""What a kernel is built for, and not bound to."""


def trace(
    kernel: common.Kernel,
    m: Annotated[int | None, typer.Option(help="Rows of A and of the result. Default: 1024.")] = None,
    n: Annotated[
        int | None, typer.Option(help="Columns of B and of the result. Default: 1024. Of conv2d: images, 1.")
    ] = None,
    k: Annotated[
        int | None, typer.Option(help="Columns of A, rows of B. Default: 512. Of conv2d: filters, 64.")
    ] = None,
    dtype: common.FamilyDtype = None,
    out_dtype: common.OutDtype = None,
    a_major: common.AMajor = "k",
    b_major: common.BMajor = "k",
    bias: common.Bias = False,
    activation: common.Activation = None,
    contiguous: common.Contiguous = False,
    accumulation: common.AccumulationMode = "fast",
    h: common.Height = None,
    w: common.Width = None,
    c: common.Channels = None,
    r: common.TapsDown = None,
    s: common.TapsAlong = None,
    stride: common.Stride = None,
    padding: common.Padding = None,
    dilation: common.Dilation = None,
    groups: common.GroupCount = None,
    residual: common.Residual = False,
    target: common.TargetName = common.DEFAULT_TARGET,
    device: Annotated[
        str,
        typer.Option(help="cuda, hip, emulator, or auto: the GPU if it is one of the target's, else the emulator."),
    ] = "auto",
    seed: Annotated[int, typer.Option(min=0, help="Of the generated operands.")] = 0,
    tiles: Annotated[
        int, typer.Option(min=1, max=65536, help="Tiles of a CTA to note; later ones leave no record.")
    ] = 64,
    tile: common.Tile = None,
    cluster: common.Cluster = None,
    schedule: common.ScheduleName = None,
    stream_k: common.StreamK = None,
    driver: common.DriverName = None,
    out: Annotated[Path, typer.Option(help="Where the events go, for ui.perfetto.dev or chrome://tracing.")] = Path(
        "trace.json"
    ),
    as_json: common.Json = False,
) -> None:
    """Run KERNEL with time stamps in every role and write what it did when.

    A process of the picture is a CTA and a track one of its activities: load, mma, epilogue. Times are ns on a GPU, and
    steps of the schedule on the emulator, where they show an order and not a speed.

    Examples: `tilekit trace matmul`; `tilekit trace matmul --m 4096 --n 4096 --k 4096 --out matmul.json`;
    `tilekit trace matmul --target sm_100a`; `tilekit trace matmul --target gfx950`;
    `tilekit trace conv2d --h 56 --padding 1`.
    """
    with common.presented(as_json):
        from tilekit.errors import ArgumentError
        from tilekit.kernels.matmul.config import KernelConfig
        from tilekit.runtime.emulated import watched

        family = common.product_family(kernel)
        workload = common.described(
            family,
            (1024, 1024, 512),
            {"m": m, "n": n, "k": k, "batch": None, "a_major": a_major, "b_major": b_major, "contiguous": contiguous},
            {
                "h": h,
                "w": w,
                "c": c,
                "r": r,
                "s": s,
                "stride": stride,
                "padding": padding,
                "dilation": dilation,
                "groups": groups,
                "residual": residual,
            },
            dtype=dtype,
            out_dtype=out_dtype,
            bias=bias,
            activation=activation,
            accumulation=accumulation,
        )
        wished = common.config_of(workload, target, tile, cluster, schedule=schedule, stream_k=stream_k, driver=driver)
        common.require_taken(family, workload, target, wished)
        chosen = common.kernel_of(workload, target, wished).config
        if not isinstance(chosen, KernelConfig):
            raise ArgumentError.of(
                "--m", m, legal="9 rows or more, or a --tile: fewer are a gemv's, which notes no times", nearest=9
            )
        config = chosen.changed(profile_tiles=tiles)
        place = choose_place(device, target)
        common.require_means(workload, emulated=place.emulated)
        with progress_bar("clusters", as_json) as progress, watched(progress):
            found = _run(workload, config, target, place, seed)
        _write(found, out)
    if as_json:
        facts = {"kernel": found.kernel, "device": place.name, "records": found.count, "unit": found.unit}
        typer.echo(json.dumps(facts | {"config": str(config), "file": str(out)}))
    else:
        typer.echo(found.summary())
        typer.echo(f"{config}")
        typer.echo(f"{place.name}; events in {out}, for https://ui.perfetto.dev")


def _run(workload: Any, config: Any, target: str, place: Any, seed: int) -> TileTrace:
    kernel = common.kernel_of(workload, target, config)
    machine = place.machine
    operands = workload.operands(seed) if machine is None else workload.operands(seed, machine.upload)
    device = place.device
    a, b, keywords = workload.call(operands)
    bound = {name: value for name, value in keywords.items() if name not in _BUILT_IN}
    plan = kernel.bind(a, b, device=device, **bound)
    if device is not None or machine is not None:
        plan()  # the first launch loads the kernel
    plan()
    traced: TileTrace = plan.trace()
    return traced


def _write(found: TileTrace, out: Path) -> None:
    from tilekit.errors import ArgumentError

    try:
        found.write(out)
    except OSError as error:
        raise ArgumentError(f"--out {out} cannot be written: {error.strerror}", code="TK-CLI-006") from None
