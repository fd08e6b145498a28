"""``tilekit dump``: everything about a kernel, without running it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from tilekit.cli import common

_FILES = {
    "ptx": "{name}.ptx",
    "isa": "{name}.sass",
    "resources": "{name}.resources.json",
    "explain": "{name}.txt",
    "ranking": "{name}.ranking.txt",
}
_ALL = ("ptx", "isa", "resources", "explain")


def dump(
    kernel: common.Kernel,
    what: Annotated[
        str,
        typer.Option(
            help="explain (roles, memory map, barriers), ptx, isa (SASS), resources (from ptxas), or all of these; or "
            "ranking (every config tried for the shape, and what the model says of it)."
        ),
    ] = "explain",
    top: Annotated[int | None, typer.Option(min=1, help="Of a ranking: so many configs of each table.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder to write files into, instead of printing.")] = None,
    m: Annotated[
        int | None,
        typer.Option(help="Rows of the product that the config is chosen for. Default: 4096, or as the family takes."),
    ] = None,
    n: Annotated[int, typer.Option(help="Its columns.")] = 4096,
    k: Annotated[int, typer.Option(help="Columns of A, rows of B.")] = 4096,
    dtype: common.Dtype = "bf16",
    out_dtype: common.OutDtype = None,
    a_major: common.AMajor = "k",
    b_major: common.BMajor = "k",
    bias: common.Bias = False,
    activation: common.Activation = None,
    contiguous: common.Contiguous = False,
    accumulation: common.AccumulationMode = "fast",
    batched: Annotated[bool, typer.Option("--batched", help="The kernel of batched products.")] = False,
    target: common.TargetName = common.DEFAULT_TARGET,
    tile: common.Tile = None,
    cluster: common.Cluster = None,
    cta_group: common.CtaGroup = None,
    stages: common.Stages = None,
    schedule: common.ScheduleName = None,
    stream_k: common.StreamK = None,
    as_json: common.Json = False,
) -> None:
    """Build KERNEL for a target and show it: no GPU is needed, isa and resources need ptxas.

    The config is the one picked for the shape unless --tile, --cluster, --cta-group, --stages, --schedule or
    --stream-k say otherwise.

    Examples: `tilekit dump matmul`; `tilekit dump matmul --target sm_100a --what ptx | less`;
    `tilekit dump matmul --what all --out kernels`.
    """
    with common.presented(as_json):
        from tilekit.errors import ArgumentError

        family = common.product_family(kernel)
        if what not in (*_FILES, "all"):
            import difflib

            nearest = difflib.get_close_matches(what, _FILES, n=1)
            legal = f"{', '.join(_FILES)}, all"
            raise ArgumentError.of(
                "--what", what, legal=legal, nearest=nearest[0] if nearest else None, code="TK-CLI-005"
            )
        batch = 1 if batched else None
        shape = (common.rows_of(family, m, 4096), n, k)
        workload = common.workload_of(
            shape, batch, dtype, out_dtype, a_major, b_major, bias, activation, contiguous, accumulation
        )
        config = common.config_of(workload, target, tile, cluster, cta_group, stages, schedule, stream_k)
        common.require_taken(family, workload, target, config)
        built = common.kernel_of(workload, target, config)
        parts = {
            part: _ranking(common.ranking_of(built, workload, top), as_json and out is None)
            if part == "ranking"
            else _part(built, part)
            for part in (_ALL if what == "all" else (what,))
        }
        files = [] if out is None else _write(out, built.name, parts)
    if files:
        typer.echo(json.dumps({"files": files}) if as_json else "\n".join(files))
    elif as_json:
        typer.echo(json.dumps({"name": built.name, "config": str(config), "target": target, **parts}))
    else:
        for part, content in parts.items():
            if len(parts) > 1:
                typer.secho(f"---- {part} ----", bold=True)
            typer.echo(content if isinstance(content, str) else json.dumps(content, indent=1))


def _ranking(ranking: common.Ranking, as_json: bool) -> Any:
    return ranking.facts() if as_json else ranking.text()


def _part(built: Any, part: str) -> Any:
    if part == "explain":
        return built.explain()
    return asdict(built.resources) if part == "resources" else getattr(built, part)


def _write(folder: Path, name: str, parts: dict[str, Any]) -> list[str]:
    from tilekit.errors import ArgumentError

    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for part, content in parts.items():
            path = folder / _FILES[part].format(name=name)
            path.write_text(content if isinstance(content, str) else json.dumps(content, indent=1) + "\n")
            written.append(str(path))
    except OSError as error:
        raise ArgumentError(f"--out {folder} cannot be written: {error.strerror}", code="TK-CLI-006") from None
    return written
