"""``tilekit disassemble``: the assembly text of a code object for AMD GPUs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from tilekit.cli import common
from tilekit.cli.progress import waiting


def disassemble(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Code object of any compiler: .hsaco, .co, .o linked.")],
    out: Annotated[Path | None, typer.Option(help="File to write the text to, instead of printing it.")] = None,
    as_json: common.Json = False,
) -> None:
    """Show what is in a code object for gfx942 or gfx950: code with labels, descriptors, metadata, data.

    LLVM makes the same code and data of the text at the same addresses. An instruction with bits that mean nothing,
    which no assembler makes again, is a number with the instruction beside it. Line numbers are those that `tilekit
    lint` and `tilekit emulate` give for the same file.

    Examples: `tilekit disassemble kernel.hsaco | less`; `tilekit disassemble kernel.hsaco --out kernel.s`.
    """
    with common.presented(as_json):
        from tilekit.cli.emulate_arguments import require_writable
        from tilekit.cli.sources import read_code_object

        if out is not None:
            require_writable(out, "--out")
        with waiting(f"decoding {file.name}", as_json):
            text = read_code_object(file)
        if out is not None:
            out.write_text(text, "utf-8")
    if as_json:
        typer.echo(json.dumps({"file": str(file), **({"text": text} if out is None else {"out": str(out)})}))
    else:
        typer.echo(text if out is None else str(out), nl=out is not None)
