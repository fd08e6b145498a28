"""``tilekit cache``: what the disk cache of assembled kernels holds, whether it is whole, and an end of it."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import Annotated

import typer

from tilekit.cli import common
from tilekit.cli.progress import waiting

_ACTIONS = ("list", "verify", "clear")


def cache(
    action: Annotated[
        str, typer.Argument(metavar="[ACTION]", help="list, verify (remove what is damaged), or clear.")
    ] = "list",
    as_json: common.Json = False,
) -> None:
    """Show the disk cache of assembled kernels, check every entry of it, or remove them all.

    An entry is listed with its bytes, how long ago it was used, the begin of its key, its chip and its kernel; below
    them is the kernel's config.

    `verify` exits with 1 if an entry was damaged: it is removed, and its kernel is assembled again when it is needed.

    Examples: `tilekit cache`; `tilekit cache verify`; `tilekit cache clear --json`.
    """
    with common.presented(as_json):
        import difflib

        from tilekit.errors import ArgumentError
        from tilekit.runtime.cache import default_cache

        if action not in _ACTIONS:
            nearest = difflib.get_close_matches(action, _ACTIONS, n=1)
            raise ArgumentError.of(
                "ACTION", action, legal="list, verify or clear", nearest=(nearest or ["list"])[0], code="TK-CLI-005"
            )
        kept = default_cache()
        if action == "clear":
            with waiting("removing entries", as_json):
                removed = kept.clear()
            typer.echo(json.dumps({"removed": removed}) if as_json else f"{_entries(removed)} removed")
            return
        with waiting("reading entries", as_json):
            damaged = kept.verify() if action == "verify" else []
            stats, files = kept.stats(), kept.entries()
    if as_json:
        facts = {"folder": str(stats.folder), "entries": stats.entries, "bytes": stats.bytes, "limit": stats.limit}
        rows = [asdict(file) for file in files]
        typer.echo(json.dumps({**facts, **({"damaged": damaged} if action == "verify" else {"files": rows})}))
    else:
        for key in damaged:
            typer.echo(f"damaged, removed: {key}")
        if action == "list":
            for file in files:
                what = f"{file.target or '?'}  {file.kernel or '?'}"
                typer.echo(f"{file.bytes:>10,}  {_age(time.time() - file.used):>8}  {file.key[:12]}  {what}")
                if file.config:
                    typer.echo(f"{'':10}  {file.config}")
        state = " whole" if action == "verify" else ""
        typer.echo(f"{stats.folder}: {_entries(stats.entries)}{state}, {stats.bytes:,} of {stats.limit:,} bytes")
    raise typer.Exit(common.WRONG if damaged else common.OK)


def _age(seconds: float) -> str:
    """A time in the largest unit that it has one of."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def _entries(count: int) -> str:
    return f"{count} {'entry' if count == 1 else 'entries'}"
