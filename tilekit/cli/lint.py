"""``tilekit lint``: what is wrong with a PTX file without running it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tilekit.cli import common


def lint(
    file: Annotated[Path, typer.Argument(metavar="FILE.ptx", help="PTX text, whoever wrote it.")],
    target: Annotated[str | None, typer.Option(help="Chip. Default: the file's .target.")] = None,
    as_json: common.Json = False,
) -> None:
    """Check FILE.ptx without running it: syntax, instructions, barriers, fences and registers.

    Exits with 1 if anything is wrong. What only shows when a kernel runs, `tilekit emulate` finds.

    Examples: `tilekit lint kernel.ptx`; `tilekit lint kernel.ptx --target sm_100a --json`.
    """
    with common.presented(as_json):
        from tilekit.cli.emulate_arguments import CODE, read_file
        from tilekit.emulator.core.errors import nearest
        from tilekit.emulator.ptx.chips import CHIPS
        from tilekit.emulator.ptx.lint.lint import lint as lint_text
        from tilekit.errors import ArgumentError

        if target is not None and target not in CHIPS:
            close = nearest(target, CHIPS) or None
            raise ArgumentError.of("--target", target, legal=", ".join(CHIPS), nearest=close, code=CODE)
        remarks = lint_text(read_file(file, "FILE.ptx").decode("utf-8", "replace"), target)
    if as_json:
        typer.echo(json.dumps({"file": str(file), "clean": not remarks, "remarks": [asdict(r) for r in remarks]}))
    else:
        for remark in remarks:
            typer.echo(f"{file}:{remark.line}: {str(remark).partition(': ')[2]}")
        typer.echo(f"{file}: {f'{len(remarks)} found' if remarks else 'nothing found'}")
    raise typer.Exit(common.WRONG if remarks else common.OK)
