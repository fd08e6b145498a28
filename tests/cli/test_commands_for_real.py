"""The commands on the real kernels: traced, assembled by ptxas, run on the emulator."""

from __future__ import annotations

import json
from typing import Any

import pytest


def test_dump_of_the_real_matmul(invoke: Any, tmp_path: Any) -> None:
    """PTX, SASS, resources and explanation of the default kernel are written and agree about the same kernel."""
    result = invoke("dump", "matmul", "--what", "all", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    ptx, sass, resources, explained = (
        next(tmp_path.glob(f"matmul_*.{suffix}")).read_text() for suffix in ("ptx", "sass", "resources.json", "txt")
    )
    assert ptx.count("wgmma.mma_async") >= 4
    assert ".target sm_90a" in ptx
    assert "HGMMA" in sass
    assert "USETMAXREG" in sass
    assert json.loads(resources)["spill_store_bytes"] == 0
    assert "inputs.full" in explained


def test_dump_of_the_real_matmul_for_blackwell(invoke: Any, tmp_path: Any) -> None:
    """The same for sm_100a: tensor memory, CTA pairs and claims in every part."""
    result = invoke("dump", "matmul", "--target", "sm_100a", "--what", "all", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    ptx, sass, resources, explained = (
        next(tmp_path.glob(f"matmul_*.{suffix}")).read_text() for suffix in ("ptx", "sass", "resources.json", "txt")
    )
    assert ptx.count("tcgen05.mma.cta_group::2.kind::f16") == 4
    assert ".target sm_100a" in ptx
    assert "UTCHMMA.2CTA" in sass
    assert json.loads(resources)["spill_store_bytes"] == 0
    assert "tensor memory 512 of 512 columns" in explained
    assert "clc.response" in explained


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize(
    "options",
    [
        ("--target", "sm_100a"),
        ("--target", "sm_100a", "--tile", "64x64", "--cta-group", 2, "--stages", 2, "--b-major", "mn", "--bias"),
        ("--target", "sm_100a", "--dtype", "e4m3", "--a-major", "mn", "--b-major", "mn", "--batch", 2),
        ("--n", 136),
        (
            "--dtype",
            "f16",
            "--out-dtype",
            "f32",
            "--a-major",
            "mn",
            "--b-major",
            "mn",
            "--activation",
            "gelu",
            "--bias",
        ),
        ("--dtype", "e4m3,e5m2", "--k", 200, "--batch", 2),
    ],
    ids=[
        "blackwell",
        "blackwell-half-pairs",
        "blackwell-fp8-transposed",
        "bf16",
        "f16-transposed-fused",
        "fp8-batched",
    ],
)
def test_run_of_the_real_matmul(invoke: Any, options: Any) -> None:
    """Small products of each kind are right to the last element on the emulator."""
    result = invoke("run", "matmul", "--device", "emulator", "--m", 72, "--n", 64, "--k", 64, *options, "--json")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts["right"]
    assert 0 < facts["relative_error"] < 0.01


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_an_amd_matmul(target: str, invoke: Any, tmp_path: Any) -> None:
    """run, dump and trace take an AMD chip: a right result, AMDGCN text and its registers, and times of tiles."""
    shape = ("--m", 64, "--n", 48, "--k", 72, "--target", target)
    result = invoke("run", "matmul", *shape, "--b-major", "mn", "--bias")
    assert result.exit_code == 0, result.output
    assert f"emulator of {target}" in result.stdout
    assert "correct" in result.stdout
    result = invoke("dump", "matmul", *shape, "--what", "all", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    text, code = (next(tmp_path.glob(f"matmul_*kk.{suffix}")).read_text() for suffix in ("s", "isa.s"))
    assert "v_mfma_f32_16x16x" in text
    assert f'.amdgcn_target "amdgcn-amd-amdhsa--{target}"' in code
    resources = json.loads(next(tmp_path.glob("*.resources.json")).read_text())
    assert (resources["stack_bytes"], resources["vgprs"] > 0) == (0, True)
    assert "LDS access" in next(tmp_path.glob("*.txt")).read_text()
    result = invoke("trace", "matmul", *shape, "--out", tmp_path / "times.json")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "times.json").stat().st_size > 100
    result = invoke("run", "matmul", *shape, "--device", "cuda")
    assert (result.exit_code, "TK-CLI-003" in result.stderr) == (2, True)
