"""Tables and long lines within the terminal's columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer


def print_facts(title: str, facts: Mapping[str, Any]) -> None:
    """Print a table of names and values within the terminal's columns, or 80; no line ends in spaces."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", title_style="bold", show_header=False, box=None, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(name, value if isinstance(value, Text) else Text(str(value)))  # Text: no markup, `[cuda]` stays
    console = Console()
    with console.capture() as capture:
        console.print(table)
    typer.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))


def columns() -> int:
    """Columns of the terminal; 80 where there is none."""
    import shutil

    return max(40, shutil.get_terminal_size((80, 24)).columns)


def fitted(text: str, indent: int) -> str:
    """Return the text with lines that are wider than the terminal broken between words, their rests indented."""
    import textwrap

    rest, most = " " * indent, columns()
    lines = (
        textwrap.wrap(line, most, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False)
        if len(line) > most
        else [line]
        for line in text.splitlines()
    )
    return "\n".join(one for parts in lines for one in parts)


def wrapped(name: str, value: object, width: int) -> str:
    """Return a row of a name, padded to a width, and a value that is broken between words where the terminal ends."""
    import textwrap

    indent = "  " + " " * width + "  "
    lines = textwrap.wrap(str(value), columns() - len(indent), break_long_words=False, break_on_hyphens=False) or [""]
    return f"  {name:<{width}}  " + f"\n{indent}".join(lines)
