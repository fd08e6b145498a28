"""``tilekit trace``: when each role of a kernel worked on each tile, as the kernel itself notes it."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilekit.cli import common, kernels, options, own_kernel
from tilekit.cli.progress import progress_bar
from tilekit.cli.run import Place, choose_place

if TYPE_CHECKING:
    from tilekit.errors import ArgumentError
    from tilekit.runtime.trace import TileTrace


_BUILT_IN = ("activation", "precision", "accumulation")
"""What a kernel is built for, and not bound to."""


@options.describes_a_call(1024, 1024, 512)
def trace(
    kernel: options.Kernel,
    call: options.CallOptions,
    device: Annotated[
        str,
        typer.Option(help="cuda, hip, emulator, or auto: the GPU if it is one of the target's, else the emulator."),
    ] = "auto",
    seed: Annotated[int, typer.Option(min=0, help="Of the generated operands.")] = 0,
    tiles: Annotated[
        int, typer.Option(min=1, max=65536, help="Tiles of a CTA to note; later ones leave no record.")
    ] = 64,
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
    `tilekit trace conv2d --h 56 --padding 1`; `tilekit trace attention --queries 512 --causal`;
    `tilekit trace mine.py:kernel --m 500`, a composed kernel of yours.
    """
    if own_kernel.names_file(kernel):
        return _trace_own(kernel, call, device, seed, tiles, out, as_json)
    with common.presented(as_json):
        from dataclasses import replace

        from tilekit.errors import ArgumentError
        from tilekit.kernels.gemv.config import GemvConfig
        from tilekit.runtime.emulated import watched

        _, workload, target, wished = kernels.asked(kernel, call)
        chosen = kernels.kernel_of(workload, target, wished).config
        if isinstance(chosen, GemvConfig):
            raise ArgumentError.of(
                "--m", call.m, legal="9 rows or more, or a --tile: fewer are a gemv's, which notes no times", nearest=9
            )
        config = replace(chosen, profile_tiles=tiles)
        place = choose_place(device, target)
        kernels.require_means(workload, emulated=place.emulated)
        _require_room(out)
        with progress_bar("clusters", as_json) as progress, watched(progress):
            found = _run(workload, config, target, place, seed)
        _write(found, out)
    _show(found, {"config": str(config)}, place, out, as_json)
    return None


def _trace_own(
    kernel: str, call: options.CallOptions, device: str, seed: int, tiles: int, out: Path, as_json: bool
) -> None:
    """Trace a composed kernel on arrays of small whole numbers."""
    with common.presented(as_json):
        from tilekit.runtime.emulated import watched

        own = own_kernel.chosen(kernel, call)
        extents = own_kernel.extents_of(own, call.extents, dict(zip("mnk", call.usual, strict=True)))
        place = choose_place(device, own.target.name)
        inputs = own.example(seed, **extents)
        if place.machine is not None:
            inputs = {name: place.machine.upload(array) for name, array in inputs.items()}
        _require_room(out)
        with progress_bar("clusters", as_json) as progress, watched(progress):
            found = own.trace(**inputs, tiles=tiles, device=place.device)
        _write(found, out)
    _show(found, {"extents": own_kernel.spelled(extents)}, place, out, as_json)


def _show(found: TileTrace, facts: dict[str, str], place: Place, out: Path, as_json: bool) -> None:
    if as_json:
        known = {"kernel": found.kernel, "device": place.name, "records": found.count, "unit": found.unit}
        typer.echo(json.dumps(known | facts | {"file": str(out)}))
    else:
        typer.echo(found.summary())
        typer.echo("\n".join(facts.values()))
        typer.echo(f"{place.name}; events in {out}, for https://ui.perfetto.dev")


def _run(workload: Any, config: Any, target: str, place: Any, seed: int) -> TileTrace:
    kernel = kernels.kernel_of(workload, target, config)
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


def _require_room(out: Path) -> None:
    """Refuse a place where no file can be, before the kernel runs."""
    if out.is_dir():
        raise _unwritable(out, os.strerror(errno.EISDIR))
    if not out.parent.is_dir():
        raise _unwritable(out, os.strerror(errno.ENOENT))


def _write(found: TileTrace, out: Path) -> None:
    try:
        found.write(out)
    except OSError as error:
        raise _unwritable(out, str(error.strerror)) from None


def _unwritable(out: Path, why: str) -> ArgumentError:
    from tilekit.errors import ArgumentError

    return ArgumentError(f"--out {out} cannot be written: {why}", code="TK-CLI-006")
