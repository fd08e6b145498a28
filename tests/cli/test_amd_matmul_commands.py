"""`tilekit run`, `dump` and `trace` of matmuls for AMD chips: types, drivers, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

SMALL = ("--m", 130, "--n", 136, "--k", 144)


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize(
    ("target", "options", "config"),
    [
        ("gfx950", ("--dtype", "e4m3,e5m2", "--driver", "ping_pong"), "ping-pong, 8 waves as 2x4"),
        ("gfx942", ("--dtype", "e4m3fnuz", "--driver", "interleaved"), "interleaved, 4 waves"),
        ("gfx942", ("--dtype", "f16", "--driver", "ping_pong", "--stages", 1), "ping-pong, 8 waves"),
        ("gfx950", ("--dtype", "bf16", "--driver", "warp_specialized"), "waves load"),
    ],
)
def test_run(invoke: Any, target: str, options: tuple[object, ...], config: str) -> None:
    """Each type and each driver is run, checked against float64, and named."""
    result = invoke("run", "matmul", "--target", target, *SMALL, *options)
    assert result.exit_code == 0, result.output
    assert config in result.stdout
    assert "result  correct" in result.stdout


def test_run_of_scaled_products(invoke: Any) -> None:
    """MXFP4 on gfx950."""
    result = invoke("run", "block_scaled", "--dtype", "mxfp4", "--target", "gfx950", "--m", 70, "--n", 72, "--k", 192)
    assert result.exit_code == 0, result.output
    assert "result  correct" in result.stdout


def test_dump_and_trace(invoke: Any, tmp_path: Path) -> None:
    """The loop is drawn with all of its waves; times of tiles are those of both activities."""
    shown = invoke("dump", "matmul", "--target", "gfx950", "--dtype", "e4m3").stdout
    assert all(f"wave {wave}" in shown for wave in range(4))
    assert "ping" in invoke("dump", "matmul", "--target", "gfx950", "--what", "ranking", "--top", 3).stdout
    trace = tmp_path / "times.json"
    options = ("--driver", "interleaved", "--out", trace)
    result = invoke("trace", "matmul", "--target", "gfx950", *SMALL, *options)
    assert result.exit_code == 0, result.output
    assert "epilogue 3" in result.stdout
    assert trace.stat().st_size > 1000


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--target", "gfx942", "--dtype", "e4m3"), "nearest: e4m3fnuz (float8_e4m3fnuz)"),
        (("--target", "gfx950", "--dtype", "e5m2fnuz"), "nearest: e5m2 (float8_e5m2)"),
        (("--target", "sm_90a", "--driver", "ping_pong"), "gfx942, gfx950 only"),
        (("--target", "gfx950", "--driver", "pingpong"), "nearest: --driver ping_pong"),
        (("--target", "gfx950", "--driver", "interleaved", "--b-major", "mn"), "nearest: --driver ping_pong"),
        (("--target", "gfx942", "--driver", "interleaved", "--tile", "256x256"), "nearest: --tile 128x128"),
    ],
)
def test_bad_input(invoke: Any, options: tuple[str, ...], words: str) -> None:
    """The error names what was given, what is legal, and the nearest of it."""
    result = invoke("dump", "matmul", *options)
    assert result.exit_code == 2
    assert words in " ".join(result.stderr.split())
