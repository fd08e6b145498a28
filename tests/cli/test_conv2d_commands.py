"""`tilekit run`, `dump` and `trace` of convolutions, for real: small ones, on the emulator."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import tilekit

SMALL = ("--h", 5, "--w", 4, "--c", 8, "--k", 16)


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("chip", ["sm_90a", "sm_100a"])
@pytest.mark.parametrize(
    ("options", "label", "kind"),
    [
        ((), "1x5x4x8 16x3x3", "bf16→bf16"),
        (("--r", 1, "--n", 3), "3x5x4x8 16x1x1", "bf16→bf16"),
        (
            ("--r", 2, "--s", 3, "--stride", "2x1", "--padding", 1, "--dilation", "1x2", "--groups", 2),
            "1x5x4x8 16x2x3 s2x1 p1 d1x2 g2",
            "bf16→bf16",
        ),
        (
            ("--bias", "--residual", "--activation", "silu", "--dtype", "f16", "--out-dtype", "f32"),
            "1x5x4x8 16x3x3",
            "f16→f32 +bias +residual +silu",
        ),
        (("--dtype", "e4m3,e5m2"), "1x5x4x8 16x3x3", "e4m3·e5m2→bf16"),
    ],
    ids=str,
)
def test_run_computes_what_the_options_say(invoke: Any, options: Any, label: str, kind: str, chip: str) -> None:
    """The label has every number, the kind types and functions, and each element is right."""
    found = json.loads(invoke("run", "conv2d", *SMALL, *options, "--target", chip, "--json").stdout)
    assert (found["shape"], found["kind"], found["right"]) == (label, kind, True)
    assert found["name"].startswith("conv2d")  # 1x1 filters of 8 channels too: in slices as wide


def test_chips_whose_threads_copy_pixels(invoke: Any, tmp_path: Any) -> None:
    """`run`, `dump` and `trace` read a call as the chip loads it, with a tile that is asked for too."""
    options = (*SMALL, "--target", "sm_89", "--tile", "64x64")
    found = json.loads(invoke("run", "conv2d", *options, "--dtype", "e4m3", "--residual", "--json").stdout)
    assert (found["right"], "tile 64x64" in found["config"]) == (True, True)
    shown = invoke("dump", "conv2d", "--target", "sm_86", "--c", 3, "--r", 7, "--tile", "64x64").stdout
    assert "LineLoader for CpAsyncLoader" in shown
    assert "PixelLoader" in invoke("dump", "conv2d", "--target", "sm_120a", "--groups", 2).stdout
    where = ("--out", tmp_path / "t.json", "--json")
    assert json.loads(invoke("trace", "conv2d", *options, "--groups", 2, *where).stdout)["records"] > 0
    refused = invoke("run", "conv2d", *SMALL, "--target", "sm_80", "--dtype", "e4m3")
    assert (refused.exit_code != 0, "TK-MM-001" in refused.output) == (True, True)


def test_run_finds_a_wrong_pixel(invoke: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two lines of the result swapped are WRONG, and exit code 1."""
    real = tilekit.conv2d

    def spoiled(*arrays: Any, **keywords: Any) -> Any:
        return np.flip(real(*arrays, **keywords), 1)

    monkeypatch.setattr(tilekit, "conv2d", spoiled)
    result = invoke("run", "conv2d", *SMALL)
    assert (result.exit_code, "WRONG" in result.stdout) == (1, True)


def test_dump_explains_and_ranks(invoke: Any) -> None:
    """What is swapped for a matmul's component, with the config that an option asks for; and what was tried."""
    shown = invoke("dump", "conv2d", "--c", 3, "--r", 7, "--tile", "128x64").stdout
    assert "LineLoader for TmaLoader" in shown
    assert "128x64x64" in shown
    assert "tile 128x64" in invoke("dump", "conv2d", "--h", 56, "--what", "ranking").stdout


def test_trace_notes_every_tile(invoke: Any, tmp_path: Any) -> None:
    """Also of groups, with a bias and a residual, which the plan is bound to, and of 1x1 filters."""
    for more in (("--groups", 2, "--bias", "--residual"), ("--r", 1)):
        found = json.loads(invoke("trace", "conv2d", *SMALL, *more, "--out", tmp_path / "t.json", "--json").stdout)
        assert found["records"] > 0


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("run", "conv2d", "--m", 4), "--m: given 4; legal: of a product only"),
        (("run", "conv2d", "--b-major", "mn"), "--b-major: given 'mn'"),
        (("run", "matmul", "--h", 4), "--h: given 4; legal: of conv2d only"),
        (("dump", "gemv", "--residual"), "--residual"),
        (("run", "conv2d", "--stride", "2y1"), "--stride: given"),
        (("run", "conv2d", "--stride", 0), "--stride: given '0'; legal: a whole number from 1 on"),
        (("run", "conv2d", "--padding", -1), "--padding: given '-1'; legal: a whole number, or two as DxA; nearest"),
        (("run", "conv2d", "--dtype", "f32"), "--dtype: given 'f32'; legal: bf16, f16, e4m3 or e5m2 of conv2d"),
        (("run", "conv2d", "--dtype", "tf32"), "--dtype: given 'tf32'; legal: bf16, f16, e4m3 or e5m2 of conv2d"),
        (("bench", "conv2d", "--shape", "1x0x5x8 8x3x3"), "shape: given '1x0x5x8 8x3x3"),
        (("bench", "conv2d", "--shape", "1x8x8x16 16x3x3 s0"), "--shape: given '1x8x8x16 16x3x3 s0'"),
        (("bench", "conv2d", "--shape", "1x8x8x16 16x3x3 d0x2 g0"), "nearest legal: '1x8x8x16 16x3x3 d1x2'"),
        (("tune", "conv2d", "--shape", "1x8x8x16 16x3x3 g3"), "--shape '1x8x8x16 16x3x3 g3': g3 with 16 channels"),
        (("bench", "conv2d", "--shape", "1x8x8x16 16x9x9"), "nearest: p1"),
        (("run", "conv2d", "--stride", "x"), "--stride: given 'x'; legal: a whole number, or two as DxA"),
        (("run", "conv2d", "--stride", "2,1"), "a whole number, or two as DxA; nearest legal: '2x1'"),
        (("run", "conv2d", "--stride", "0x2"), "a whole number from 1 on, or two as DxA; nearest legal: '1x2'"),
        (("run", "conv2d", "--dilation", 0), "--dilation: given '0'; legal: a whole number from 1 on"),
        (("dump", "conv2d", "--padding", "2x0x1"), "a whole number, or two as DxA; nearest legal: '2x0'"),
        (("dump", "conv2d", "--batched"), "--batched: given True"),
        (("run", "conv2d", "--dtype", "int8"), "--dtype: given 'int8'; legal: bf16, f16, e4m3 or e5m2 of conv2d"),
        (("run", "conv2d", "--dtype", "bf16,e4m3"), "--dtype: given 'bf16,e4m3'; legal: bf16, f16, e4m3 or e5m2"),
        (("run", "conv2d", "--groups", 3), "--groups 3 with 64 channels"),
        (("run", "conv2d", "--c", 0), "--c: given 0; legal: a whole number from 1 on; nearest legal: 1"),
        (("run", "conv2d", "--h", -3), "--h: given -3"),
        (("run", "conv2d", "--groups", 0), "--groups: given 0"),
        (("bench", "conv2d", "--shape", "64x64x64"), "NxHxWxC KxRxS"),
        (("tune", "conv2d", "--shape", "1x5x5x8 8x3x3", "--a-major", "mn"), "--a-major"),
        (("run", "conv2d", "--r", 40), "nearest: --padding 6"),
    ],
    ids=str,
)
def test_what_is_wrong_with_the_options(invoke: Any, command: Any, words: str) -> None:
    """Exit code 2, and the option or argument by its name."""
    result = invoke(*command)
    assert (result.exit_code, words in result.output) == (2, True), result.output
