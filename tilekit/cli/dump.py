"""``tilekit dump``: everything about a kernel, without running it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from tilekit.cli import common, families, kernels, options, own_kernel, tables
from tilekit.cli.progress import waiting
from tilekit.cli.ranking import Ranking, ranking_of

_FILES = {
    "ptx": "{name}.ptx",
    "assembly": "{name}.{text}",
    "isa": "{name}.{code}",
    "resources": "{name}.resources.json",
    "explain": "{name}.txt",
    "ranking": "{name}.ranking.txt",
}
_ENDINGS = {"ptx": {"text": "ptx", "code": "sass"}, "gcn": {"text": "s", "code": "isa.s"}}
"""Of files, by instruction set."""

_ALL = ("assembly", "isa", "resources", "explain")


@options.describes_a_call(4096, 4096, 4096)
def dump(
    kernel: options.Kernel,
    call: options.CallOptions,
    what: Annotated[
        str,
        typer.Option(
            help="explain (roles, memory map, barriers), assembly (PTX or AMDGCN), ptx (the same, of PTX alone), isa "
            "(SASS, or AMDGCN as it was assembled), resources (from the assembler), or all of these; or ranking (every "
            "config tried for the shape, and what the model says of it)."
        ),
    ] = "explain",
    top: Annotated[int | None, typer.Option(min=1, help="Of a ranking: so many configs of each table.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder to write files into, instead of printing.")] = None,
    batched: Annotated[bool, typer.Option("--batched", help="The kernel of batched products.")] = False,
    as_json: common.Json = False,
) -> None:
    """Build KERNEL for a target and show it: no GPU is needed, isa and resources need an assembler.

    The config is the one picked for the shape unless its options say otherwise.

    Examples: `tilekit dump matmul`; `tilekit dump matmul --target sm_100a --what ptx | less`;
    `tilekit dump matmul --what all --out kernels`; `tilekit dump matmul --target gfx950`;
    `tilekit dump conv2d --c 128 --stride 2`; `tilekit dump block_scaled --dtype nvfp4`;
    `tilekit dump grouped_matmul --sizes 5,0,130 --room 256`.
    """
    with common.presented(as_json):
        from tilekit.errors import ArgumentError

        own = own_kernel.chosen(kernel, call, batched=batched, top=top) if own_kernel.names_file(kernel) else None
        if what not in (*_FILES, "all"):
            import difflib

            nearest = difflib.get_close_matches(what, _FILES, n=1)
            legal = f"{', '.join(_FILES)}, all"
            raise ArgumentError.of(
                "--what", what, legal=legal, nearest=nearest[0] if nearest else None, code="TK-CLI-005"
            )
        if own is not None:
            if what == "ranking":
                legal = f"{', '.join(_ALL)} or all: no config was chosen for {kernel}"
                raise ArgumentError.of("--what", what, legal=legal, nearest="explain", code="TK-CLI-005")
            parts = {part: _part(own, part) for part in (_ALL if what == "all" else (what,))}
            _show(own, {"target": own.target.name}, parts, out, as_json)
            return
        if batched and not families.takes_batches(families.product_family(kernel)):
            common.refuse("--batched", batched, f"of a product that has batches only, which {kernel} is not")
        family, workload, target, config = kernels.asked(kernel, call, 1 if batched else None)
        built = kernels.kernel_of(workload, target, config)

        def show(part: str) -> Any:
            if part == "ranking":
                if families.attends(family):
                    legal = f"{', '.join(_ALL)} or all: attention's config is chosen by a table"
                    raise ArgumentError.of("--what", what, legal=legal, nearest="explain", code="TK-CLI-005")
                return _ranking(ranking_of(built, cast("Any", workload), top), as_json and out is None)
            return _part(built, part)

        with waiting("assembling", as_json):
            parts = {part: show(part) for part in (_ALL if what == "all" else (what,))}
        _show(built, {"config": str(config), "target": target}, parts, out, as_json)


def _show(built: Any, facts: dict[str, str], parts: dict[str, Any], out: Path | None, as_json: bool) -> None:
    """Print parts of a kernel, or write them into files."""
    files = [] if out is None else _write(out, built, parts)
    if files:
        typer.echo(json.dumps({"files": files}) if as_json else "\n".join(files))
    elif as_json:
        typer.echo(json.dumps({"name": built.name, **facts, **parts}))
    else:
        for part, content in parts.items():
            if len(parts) > 1:
                typer.secho(f"---- {part} ----", bold=True)
            shown = tables.fitted(content, 13) if part == "explain" else content
            typer.echo(shown if isinstance(shown, str) else json.dumps(shown, indent=1))


def _ranking(ranking: Ranking, as_json: bool) -> Any:
    return ranking.facts() if as_json else ranking.text()


def _part(built: Any, part: str) -> Any:
    if part == "explain":
        return built.explain()
    return asdict(built.resources) if part == "resources" else getattr(built, part)


def _write(folder: Path, built: Any, parts: dict[str, Any]) -> list[str]:
    from tilekit.errors import ArgumentError

    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for part, content in parts.items():
            path = folder / _FILES[part].format(name=built.name, **_ENDINGS[built.target.isa])
            path.write_text(content if isinstance(content, str) else json.dumps(content, indent=1) + "\n")
            written.append(str(path))
    except OSError as error:
        raise ArgumentError(f"--out {folder} cannot be written: {error.strerror}", code="TK-CLI-006") from None
    return written
