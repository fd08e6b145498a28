"""Commands that say which option an argument too many was meant for."""

from __future__ import annotations

import re
from typing import Any

from typer.core import TyperCommand

from tilekit.cli import common


class Command(TyperCommand):
    """A command of ``tilekit``: its words behind KERNEL or a file are options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments, and refuse one too many in the words of options."""
        as_json = "--json" in args
        ctx.allow_extra_args = True  # they are refused here
        rest = super().parse_args(ctx, args)
        if rest and not ctx.resilient_parsing:
            from tilekit.errors import ArgumentError

            name, nearest = ctx.info_name, self._nearest(ctx.params, rest)
            said = f"`tilekit {name}` takes no argument {' '.join(rest)!r}"
            said += f"; legal: its options (`tilekit {name} --help`)"
            said += f"; nearest: {nearest}" if nearest else ""
            common.fail(ArgumentError(said, code="TK-CLI-014"), common.USAGE, as_json)
        return rest

    def _nearest(self, given: dict[str, Any], rest: list[str]) -> str | None:
        """The options that say what a shape among the arguments says."""
        shape = "x".join(rest)
        if not re.fullmatch(r"\d+(x\d+){1,3}", shape):
            return None
        extents = shape.split("x")
        if "shape" in given:
            return f"--shape {shape}"
        own: dict[Any, tuple[str, ...]] = {"conv2d": ("n", "h", "w", "c"), "attention": ()}
        letters = own.get(given.get("kernel"), ("batch", "m", "n", "k")[-len(extents) :])
        if len(letters) != len(extents) or len(extents) < 3 or not given.keys() >= set(letters):
            return None
        return " ".join(f"--{letter} {extent}" for letter, extent in zip(letters, extents, strict=True))
