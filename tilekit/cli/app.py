"""The commands, and what ``tilekit --help`` says of them. Each command imports what it needs when it runs."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from typing import NoReturn

import typer

from tilekit.cli import bench, cache, cycles, disassemble, doctor, dump, emulate, lint, listing, run, trace, tune
from tilekit.cli.positions import Command
from tilekit.errors import TilekitError

__all__ = ["app", "main"]

_HELP = """
Structured GPU kernels from hand-written assembly, run on your GPU or on the built-in emulator.

- `tilekit run matmul`: 512x512x512 in bf16, checked against float64

- `tilekit run matmul --m 4096 --bias`: another shape, and a fused bias

- `tilekit run matmul --target sm_100a`: the same on Blackwell: tensor memory, CTA pairs, claimed tiles

- `tilekit run matmul --target gfx950`: the same on an AMD chip: waves that load, matrix cores, counters in LDS

- `tilekit dump matmul --what ptx`: the kernel's text, each line tagged with its role and Python line

- `tilekit bench matmul`: against cuBLAS on this GPU

- `tilekit trace matmul`: when each role worked on each tile, for Perfetto

- `tilekit emulate kernel.ptx --arg f32[64]=range`: any PTX file on the emulator, with every check

- `tilekit emulate kernel.hsaco`: the same for AMD GPUs: assembly (`kernel.s`) or a code object

- `tilekit lint kernel.ptx`: what is wrong with it without running it; also `kernel.s` and `kernel.hsaco`

- `tilekit disassemble kernel.hsaco`: the assembly text of a code object

- `tilekit cycles kernel.s`: how fast the loop of an AMD kernel runs on a compute unit, by a model, and what stalls

- `tilekit tune matmul --shape 4096x4096x4096`: measure configs here, and use the quickest from now on

- `tilekit cache`: the assembled kernels that are kept on disk; `verify` and `clear`

- `tilekit doctor`: what is installed, what it can do, what is missing

Exit codes: 0 all well, 1 a wrong result or a finding, 2 bad usage, 3 the machine lacks something.
"""

app = typer.Typer(
    help=_HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
_COMMANDS: dict[str, Callable[..., None]] = {
    "run": run.run,
    "dump": dump.dump,
    "trace": trace.trace,
    "emulate": emulate.emulate,
    "lint": lint.lint,
    "disassemble": disassemble.disassemble,
    "cycles": cycles.cycles,
    "bench": bench.bench,
    "tune": tune.tune,
    "cache": cache.cache,
    "doctor": doctor.doctor,
    "list": listing.list_kernels,
}
for _name, _command in _COMMANDS.items():
    app.command(_name, cls=Command)(_command)


def _version(wanted: bool) -> None:
    if wanted:
        import tilekit

        typer.echo(f"tilekit {tilekit.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", help="Print the version.", is_eager=True, callback=_version),
) -> None:
    pass


def main() -> None:
    """Run the command line; the console script's entry point.

    What goes wrong here is a defect of tilekit's, or an output that cannot be written: no traceback is printed, and
    that of a defect is kept in a file.
    """
    try:
        app(prog_name="tilekit")
    except OSError as error:  # of stdout: the commands say what is wrong with other files
        _last_words(TilekitError(f"the output cannot be written: {error.strerror or error}", code="TK-CLI-011"))
    except Exception as error:
        text = f"a defect of tilekit: {type(error).__name__}: {error}\n{_kept(error)}"
        _last_words(TilekitError(text, code="TK-CLI-012"))


def _kept(error: Exception) -> str:
    """Keep an error's traceback for a report; return where."""
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="tilekit-defect-", suffix=".txt", encoding="utf-8", delete=False
        ) as file:
            traceback.print_exception(error, file=file)
            return f"please report it, with the command and {file.name}"
    except OSError:
        return "please report it, with the command"


def _last_words(error: TilekitError) -> NoReturn:
    """Say on stderr, if it is there, why the command ends, and leave without another look at stdout."""
    with contextlib.suppress(OSError, AttributeError):
        sys.stderr.write(f"error [{error.code}]\n{error.message}\n")
        sys.stderr.flush()
    os._exit(1)
