"""``tilekit lint``: what is wrong with a file of PTX or AMDGCN, or a code object, without running it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tilekit.cli import common, own_kernel
from tilekit.cli.progress import waiting


def lint(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="PTX, AMDGCN text or an AMD code object.")],
    target: Annotated[str | None, typer.Option(help="Chip. Default: the one that the file names.")] = None,
    as_json: common.Json = False,
) -> None:
    """Check FILE.ptx, FILE.s or FILE.hsaco without running it: syntax, instructions, barriers, registers, wait states.

    Exits with 1 if anything is wrong. What only shows when a kernel runs, `tilekit emulate` finds. Lines of a code
    object are those of `tilekit disassemble`.

    Examples: `tilekit lint kernel.ptx`; `tilekit lint kernel.ptx --target sm_100a --json`; `tilekit lint kernel.s`.
    """
    with common.presented(as_json):
        from tilekit.cli.sources import read_source

        own_kernel.refuse_file(
            str(file),
            "it is Python; text of assembly is linted, and a composed kernel's is checked as it is traced and run",
            f"tilekit run {file if ':' in str(file) else f'{file}:NAME'}",
        )
        source = read_source(file)
        if source.language == "AMDGCN":
            from tilekit.emulator.gcn.lint import lint as lint_text
        else:
            from tilekit.emulator.ptx.lint.lint import lint as lint_text
        # A PTX text that names a chip of its own is checked for that one, known to the emulator or not.
        amd = source.language == "AMDGCN"
        with waiting(f"checking {file.name}", as_json):
            remarks = lint_text(source.text, source.chip(target) if amd or target is not None else None)
    if as_json:
        typer.echo(json.dumps({"file": str(file), "clean": not remarks, "remarks": [asdict(r) for r in remarks]}))
    else:
        for remark in remarks:
            typer.echo(f"{file}:{remark.line}: {str(remark).partition(': ')[2]}")
        typer.echo(f"{file}: {f'{len(remarks)} found' if remarks else 'nothing found'}")
    raise typer.Exit(common.WRONG if remarks else common.OK)
