"""``tilekit cycles``: how fast a loop of AMDGCN code runs on a compute unit, by the model, and what stalls."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated

import typer

from tilekit.cli import common
from tilekit.cli.progress import waiting


def cycles(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="AMDGCN text of any origin, or a code object.")],
    entry: Annotated[str | None, typer.Option(help="Kernel. Default: the only one.")] = None,
    loop: Annotated[
        str | None, typer.Option(help="Label, or line, of the loop. Default: the innermost one with MFMAs.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="Chip. Default: the file's.")] = None,
    waves: Annotated[int | None, typer.Option(help="Waves of a workgroup. Default: what the metadata says.")] = None,
    workgroups: Annotated[int, typer.Option(help="Workgroups that share the compute unit.")] = 1,
    k_tiles: Annotated[int, typer.Option(help="K-blocks that a turn of the loop works off.")] = 1,
    load_latency: Annotated[int | None, typer.Option(help="Clocks from a load to its data. Default: 1000.")] = None,
    lds_ways: Annotated[int, typer.Option(help="How often LDS is read for one access: 1 without conflicts.")] = 1,
    take: Annotated[
        list[str] | None,
        typer.Option(metavar="LABEL", help="Branches to LABEL are taken where the text does not say so."),
    ] = None,
    turns: Annotated[
        list[str] | None, typer.Option(metavar="LABEL=N", help="A loop within the loop goes round N times.")
    ] = None,
    as_json: common.Json = False,
) -> None:
    """Replay the loop of FILE.s, or of a code object, on all waves: clocks a turn, matrix cores' share, what stalls.

    Nothing is executed: the figures of the model are on its page of the documentation, with their sources.

    Examples: `tilekit cycles examples/mfma_loop.s`; `tilekit cycles kernel.hsaco --k-tiles 2 --json`;
    `tilekit cycles kernel.s --loop .LBB0_3 --waves 8 --load-latency 1500`.
    """
    with common.presented(as_json), waiting(f"replaying {file.name}", as_json):
        from tilekit.cycles import replay_loop

        figures = {} if load_latency is None else {"load_latency": load_latency}
        report = replay_loop(
            _text(file),
            kernel=entry,
            loop=loop,
            chip=target,
            waves=waves,
            workgroups=workgroups,
            k_tiles=k_tiles,
            lds_ways=lds_ways,
            taken=dict.fromkeys(take or [], True),
            turns=_turns(turns or []),
            **figures,
        )
    typer.echo(json.dumps({"file": str(file), **report.facts()}) if as_json else str(report))


def _text(file: Path) -> str:
    """The assembly of a file: as it is, or decoded from a code object."""
    from tilekit.cli.emulate_arguments import read_file
    from tilekit.emulator.gcn.binary.errors import CodeObjectFault
    from tilekit.emulator.gcn.binary.listing import decode
    from tilekit.errors import ArgumentError

    data = read_file(file, "FILE")
    if not data.startswith(b"\x7fELF"):
        return data.decode("utf-8", "replace")
    try:
        return decode(data, exact=False)
    except CodeObjectFault as error:
        raise ArgumentError(f"FILE: {file} is no code object for an AMD chip: {error}", code="TK-CYCLES-005") from None


def _turns(words: list[str]) -> dict[str, int]:
    from tilekit.errors import ArgumentError

    found = {}
    for word in words:
        match = re.fullmatch(r"(.+)=(\d{1,9})", word)
        if match is None:
            label = word.partition("=")[0] or "LABEL"
            raise ArgumentError.of("--turns", word, legal="LABEL=N", nearest=f"{label}=1", code="TK-CYCLES-001")
        found[match[1]] = int(match[2])
    return found
