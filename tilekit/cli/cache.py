"""``tilekit cache``: what the disk cache of assembled kernels holds, whether it is whole, and an end of it."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from tilekit.cli import common

_ACTIONS = ("list", "verify", "clear")


def cache(
    action: Annotated[
        str, typer.Argument(metavar="[ACTION]", help="list, verify (remove what is damaged), or clear.")
    ] = "list",
    as_json: common.Json = False,
) -> None:
    """Show the disk cache of assembled kernels, check every entry of it, or remove them all.

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
            removed = kept.clear()
            typer.echo(json.dumps({"removed": removed}) if as_json else f"{_entries(removed)} removed")
            return
        damaged = kept.verify() if action == "verify" else []
        stats, files = kept.stats(), kept.entries()
    if as_json:
        facts = {"folder": str(stats.folder), "entries": stats.entries, "bytes": stats.bytes, "limit": stats.limit}
        rows = [{"key": key, "bytes": size} for key, size in files]
        typer.echo(json.dumps({**facts, **({"damaged": damaged} if action == "verify" else {"files": rows})}))
    else:
        for key in damaged:
            typer.echo(f"damaged, removed: {key}")
        if action == "list":
            for key, size in files:
                typer.echo(f"{size:>10,}  {key}")
        state = " whole" if action == "verify" else ""
        typer.echo(f"{stats.folder}: {_entries(stats.entries)}{state}, {stats.bytes:,} of {stats.limit:,} bytes")
    raise typer.Exit(common.WRONG if damaged else common.OK)


def _entries(count: int) -> str:
    return f"{count} {'entry' if count == 1 else 'entries'}"
