"""What `explain` says of a CDNA matmul alone: registers, banks of LDS, and the loop's schedule by the cycle model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tilekit.kernels.matmul.cdna.components import loader_kind
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import Target
from tilekit.tile_op.mfma import ATOM_REGISTERS, MFMA_FRAGMENT, Mfma

if TYPE_CHECKING:
    from tilekit.cycles import LoopReport
    from tilekit.kernels.matmul.cdna.config import CdnaConfig
    from tilekit.kernels.matmul.kernel import KernelText


def accumulators(spec: MatmulSpec, config: CdnaConfig) -> str:
    """Registers of a lane that multiplies."""
    return f"; accumulators {config.accumulators} a lane"


def tensor_memory(spec: MatmulSpec, config: CdnaConfig, chip: Target) -> list[str]:
    """There is none."""
    return []


def instructions(spec: MatmulSpec, config: CdnaConfig) -> str:
    """Those of a wave."""
    rows, columns = _own(config)
    return f", {rows}x{columns} a wave"


def _own(config: CdnaConfig) -> tuple[int, int]:
    """Rows and columns that a wave multiplies."""
    down, across = config.grid
    return config.tile[0] // down, config.tile[1] // across


def rows(spec: MatmulSpec, config: CdnaConfig) -> list[str]:
    """Nothing: a tile has all rows of its instructions."""
    return []


def sections(spec: MatmulSpec, config: CdnaConfig, text: KernelText) -> list[str]:
    """Registers, banks of LDS, and the loop of the waves that multiply."""
    return ["", *_registers(config, text), "", *_banks(spec, config, text), "", *_schedule(config, text)]


def _registers(config: CdnaConfig, text: KernelText) -> Iterator[str]:
    """What the descriptor allocates, and which sums a lane holds."""
    counts = {kind: int(_field(text.assembly, f".{kind}_count")) for kind in ("vgpr", "agpr", "sgpr")}
    counts["vgpr"] -= counts["agpr"]  # the descriptor's are those of both kinds
    yield "registers    " + ", ".join(f"{count} {kind.upper()}s" for kind, count in counts.items())
    (own, columns), (_, waves) = _own(config), config.grid
    kind = "AGPRs" if counts["agpr"] else "VGPRs"
    apart, across, pieces = MFMA_FRAGMENT.apart, MFMA_FRAGMENT.columns, config.pieces
    own_sums = f"{config.accumulators:>4} {kind}"
    halves = ", half of them in each half of the tile" if pieces > 1 else ""
    yield f"  {own_sums}  sums of {own} rows and {columns} columns of the tile{halves}; lane l of wave g has"
    row, column = ("g", "") if waves == 1 else (f"(g / {waves})", f"{columns // pieces} (g % {waves}) + ")
    lane = f"{column}{across} j + {ATOM_REGISTERS} (l / {apart}) + 0 to 3"
    yield f"              rows {own // pieces} {row} + {apart} i + l % {apart}, columns {lane}"


def _field(assembly: str, name: str) -> str:
    """A field of the kernel's metadata."""
    found = re.search(rf"^\s*{re.escape(name)}:\s*(\S+)", assembly, re.MULTILINE)
    assert found is not None, name
    return found[1]


def _banks(spec: MatmulSpec, config: CdnaConfig, text: KernelText) -> Iterator[str]:
    """Passes through the banks of each kind of access, with those that a conflict adds."""
    from tilekit.emulator.gcn.banks import conflicts

    yield f"{'LDS access':<24}{'bytes a lane':>14}{'passes':>9}{'conflicts':>11}"
    names = "ba" if config.swap_ab else "ab"
    for name, tile in zip(names, config.operands(spec), strict=True):
        kind = loader_kind(spec, config, name, text.target)
        for what, width, write, addresses in (
            ("read", Mfma.READ_BYTES, False, Mfma.read_addresses(tile)),
            ("write", *kind.lane_writes(tile, text.target)),
        ):
            counted = [conflicts(one, width, text.target.name, write=write) for one in addresses]
            needed, extra = sum(one.needed for one in counted), sum(one.extra for one in counted)
            yield f"  {tile.name} {what:<20}{width:>14}{needed:>9}{extra:>11}"


def _schedule(config: CdnaConfig, text: KernelText) -> list[str]:
    """A turn of the loop over k-blocks of the waves that multiply, stages being there when they ask for them."""
    report = replayed(config, text)
    stages = "" if config.together else ", whose stages are full"
    return [
        f"loop         {report.clocks_per_k_tile:.0f} clocks a k-block, matrix cores busy {report.utilisation:.0%}, by "
        f"the cycle model, of {config.multiplying} waves{stages}",
        *report.schedule.splitlines(),
    ]


def replayed(config: CdnaConfig, text: KernelText) -> LoopReport:
    """The loop over k-blocks, by the cycle model."""
    from tilekit.cycles import replay_loop

    assembly = text.assembly
    how: dict[str, Any] = {"waves": config.multiplying, "taken": dict.fromkeys(_by_elements(assembly), True)}
    if config.driver == "interleaved":
        how["k_tiles"] = 2
    if not config.together:
        labels = re.findall(r"^(\.L[\w.]*):", assembly, re.MULTILINE)
        how["waves"] = range(config.loading, config.waves)
        how["turns"] = {label: 1 for label in labels if label.startswith(".Lwait")}
        # Behind the first k-block no sum is cleared.
        how["taken"] = {label: True for label in labels if label.startswith(".Lendif")}
    return replay_loop(assembly, workgroups=1, chip=text.target.name, **how)


def _by_elements(assembly: str) -> Iterator[str]:
    """Labels behind loads of single elements, which are not made where rows begin at multiples of 4 bytes."""
    lines = assembly.splitlines()
    places = {line.split(":")[0]: place for place, line in enumerate(lines) if line.startswith(".Lendif")}
    for place, line in enumerate(lines):
        branch = re.match(r"\s*s_cbranch_\w+ (\.Lendif\w*)", line)
        if branch is None:
            continue
        between = "\n".join(lines[place : places[branch[1]]])
        if re.search(r"buffer_load_u", between) and "buffer_load_dwordx4" not in between:
            yield branch[1]
