"""``tilekit list``: the kernel families there are."""

from __future__ import annotations

import json

import typer

from tilekit.cli import common, tables


def list_kernels(as_json: common.Json = False) -> None:
    """List the kernel families, what each computes, and the architectures it is built for."""
    with common.presented(as_json):
        from tilekit.kernels.registry import families

        known = families()
    if as_json:
        rows = [{"name": f.name, "summary": f.summary, "targets": list(f.targets)} for f in known.values()]
        typer.echo(json.dumps(rows))
    else:
        tables.print_facts("kernels", {f.name: f"{f.summary} ({', '.join(f.targets)})" for f in known.values()})
