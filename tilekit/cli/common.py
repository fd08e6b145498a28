"""What the commands share: exit codes, how an error looks, and how an option is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Final, NoReturn

import typer

OK: Final = 0
WRONG: Final = 1
USAGE: Final = 2
MISSING: Final = 3

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
        if exit_code is not None:
            fail(error, exit_code, as_json)
        line = _line_of_own(error)
        if line is None:
            raise
        fail(ArgumentError(f"{line}: {type(error).__name__}: {error}", code="TK-CLI-013"), USAGE, as_json)


def _line_of_own(error: Exception) -> str | None:
    """File and line where an error came up, if that is in a file of kernels of the caller's (`own_kernel.load`)."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    if frame is None or frame.tb_frame.f_globals.get("__name__") != "<run_path>":
        return None
    return f"{frame.tb_frame.f_code.co_filename}:{frame.tb_lineno}"


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
    from tilekit.emulator.core.errors import EmulatorError
    from tilekit.errors import EmulationTooLong

    code = getattr(error, "code", type(error).__name__)
    # What the emulator found says where, and what to change, behind its message.
    message = in_options(str(error) if isinstance(error, EmulatorError) else getattr(error, "message", str(error)))
    if isinstance(error, EmulationTooLong) and error.facts:
        limit = f"TILEKIT_EMULATOR_LIMIT={2 * error.seconds:.0f}"
        message = f"{error.facts}. Make the problem smaller, or allow it in the environment: {limit}"
    if as_json:
        typer.echo(json.dumps({"error": message, "code": code, "exit": exit_code}))
    else:
        typer.secho(f"error [{code}]", fg="red", bold=True, err=True)
        typer.secho(message, fg="red", err=True)
    raise typer.Exit(exit_code)


def refuse(option: str, given: object, legal: str, nearest: int | str | None = None) -> NoReturn:
    """Raise what is wrong with an option that does not fit the others."""
    from tilekit.errors import ArgumentError

    raise ArgumentError.of(option, given, legal=legal, nearest=nearest, code="TK-BENCH-003")
