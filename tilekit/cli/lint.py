"""``tilekit lint``: what is wrong with a PTX or AMDGCN file without running it."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tilekit.cli import common


def lint(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="PTX or AMDGCN text of any origin.")],
    target: Annotated[str | None, typer.Option(help="Chip. Default: the file's .target.")] = None,
    as_json: common.Json = False,
) -> None:
    """Check FILE.ptx or FILE.s without running it: syntax, instructions, barriers, fences, registers, wait states.

    Exits with 1 if anything is wrong. What only shows when a kernel runs, `tilekit emulate` finds.

    Examples: `tilekit lint kernel.ptx`; `tilekit lint kernel.ptx --target sm_100a --json`; `tilekit lint kernel.s`.
    """
    with common.presented(as_json):
        from tilekit.cli.emulate_arguments import CODE, is_amdgcn, read_file
        from tilekit.emulator.core.errors import nearest
        from tilekit.errors import ArgumentError

        text = read_file(file, "FILE").decode("utf-8", "replace")
        if is_amdgcn(text):
            from tilekit.emulator.gcn.chips import CHIPS as AMD_CHIPS
            from tilekit.emulator.gcn.lint import lint as lint_text

            chips: Collection[str] = AMD_CHIPS
        else:
            from tilekit.emulator.ptx.chips import CHIPS
            from tilekit.emulator.ptx.lint.lint import lint as lint_text

            chips = CHIPS
        if target is not None and target not in chips:
            close = nearest(target, chips) or None
            raise ArgumentError.of("--target", target, legal=", ".join(chips), nearest=close, code=CODE)
        remarks = lint_text(text, target)
    if as_json:
        typer.echo(json.dumps({"file": str(file), "clean": not remarks, "remarks": [asdict(r) for r in remarks]}))
    else:
        for remark in remarks:
            typer.echo(f"{file}:{remark.line}: {str(remark).partition(': ')[2]}")
        typer.echo(f"{file}: {f'{len(remarks)} found' if remarks else 'nothing found'}")
    raise typer.Exit(common.WRONG if remarks else common.OK)
