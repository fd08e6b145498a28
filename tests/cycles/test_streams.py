"""The loops of the model's page are AMDGCN: LLVM assembles them, and they hold the work that their names say."""

from __future__ import annotations

import runpy
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tilekit.cycles import replay_loop
from tilekit.runtime.amd_toolchain import find_amd_tools

ROOT = Path(__file__).parents[2]
STREAMS: dict[str, Any] = runpy.run_path(str(ROOT / "docs" / "cdna_streams.py"))
LOOPS: dict[str, Callable[[], str]] = {
    "lds_reads": STREAMS["lds_reads"],
    "prefetched": STREAMS["prefetched"],
    "prefetched_twice": STREAMS["prefetched_twice"],
    "sliced": STREAMS["sliced"],
    "sliced 64x256": lambda: STREAMS["sliced"](64, 256, stages=4),
    "sliced f8": lambda: STREAMS["sliced"](bits=8),
    "ping_pong": STREAMS["ping_pong"],
    "producers": lambda: STREAMS["producers"](128, 256, 8),
    "attention": lambda: STREAMS["attention"](lazy=True),
    "attention, eager": lambda: STREAMS["attention"](lazy=False),
    "the example": (ROOT / "examples" / "mfma_loop.s").read_text,
}


@pytest.mark.parametrize("name", LOOPS)
def test_llvm_assembles_it(name: str, tmp_path: Path):
    """Nothing in the text is made up: LLVM's assembler takes all of it for gfx950."""
    command = [*find_amd_tools().assembler, "-triple", "amdgcn-amd-amdhsa", "-target-cpu", "gfx950"]
    answer = subprocess.run(
        [*command, "-filetype", "obj", "-", "-o", str(tmp_path / "loop.o")],
        input=LOOPS[name](),
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr[:1000]


@pytest.mark.parametrize(
    ("name", "waves", "rows", "columns", "k"),
    [
        ("prefetched", 4, 256, 256, 64), ("prefetched_twice", 4, 256, 256, 64), ("sliced", 4, 256, 256, 128),
        ("sliced 64x256", 4, 64, 256, 128), ("sliced f8", 4, 256, 256, 256), ("ping_pong", 8, 256, 256, 128),
        ("producers", 12, 128, 256, 64),
    ],
)  # fmt: skip
def test_a_turn_multiplies_a_tile(name: str, waves: int, rows: int, columns: int, k: int):
    """The FLOP of a turn are those of a tile and its k-blocks, and the loads bring as many bytes."""
    text = LOOPS[name]()
    report = replay_loop(text, chip="gfx950", waves=waves)
    assert report.flop == 2 * rows * columns * k
    start = "produce_turn:" if name == "producers" else "turn:"
    turn = text.split(f"\n{start}")[1].split("s_cbranch_scc1")[0]
    loading = 4 if name == "producers" else waves
    size = 1 if name == "sliced f8" else 2
    assert turn.count("buffer_load") * loading * 1024 == (rows + columns) * k * size


def test_waves_are_what_their_names_say():
    """Ping-pong's second group passes a barrier more; waves that load run a loop of their own, without MFMAs."""
    report = replay_loop(LOOPS["producers"](), chip="gfx950", waves=12)
    assert report.loops == ("turn",) * 8 + ("produce_turn",) * 4
    report = replay_loop(LOOPS["ping_pong"](), chip="gfx950", waves=8)
    rows = [line.split(maxsplit=2)[2] for line in report.schedule.splitlines() if "wave 0" in line or "wave 4" in line]
    both = sum(a == b == "M" for a, b in zip(*rows, strict=True))
    assert both <= len(rows[0]) // 5
