"""`tilekit cycles`: texts and code objects, options, JSON, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

Invoke = Callable[..., Result]
MFMA = "v_mfma_f32_16x16x32_bf16 a[{0}:{1}], v[0:3], v[4:7], a[{0}:{1}]"
LOOP = "\n".join(
    ['.amdgcn_target "amdgcn-amd-amdhsa--gfx950"', "start:", "turn:",
     *(MFMA.format(4 * n, 4 * n + 3) for n in range(8)),
     "ds_read_b128 v[8:11], v12", "s_cmp_lg_u32 s0, s1", "s_cbranch_scc1 turn", "s_endpgm", ""]
)  # fmt: skip


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A text with one loop."""
    path = tmp_path / "loop.s"
    path.write_text(LOOP)
    return path


def test_a_text(invoke: Invoke, file: Path):
    """Clocks, the matrix cores' share, what was lost, and the drawing."""
    result = invoke("cycles", file, "--k-tiles", 2)
    assert result.exit_code == 0, result.output
    for word in ("loop turn, 4 waves", "156 clocks a turn, 78 a k-block", "matrix cores busy", "SIMD 0", "wave 3"):
        assert word in result.output


def test_json(invoke: Invoke, file: Path):
    """The same as one object."""
    result = invoke("cycles", file, "--json", "--waves", 8, "--loop", "turn", "--target", "gfx950")
    facts = json.loads(result.output)
    assert facts["waves"] == 8
    assert facts["utilisation"] == 1
    assert facts["loops"] == ["turn"] * 8


def test_options_are_passed_on(invoke: Invoke, tmp_path: Path):
    """Latency, conflicts, workgroups, branches and turns of inner loops change what comes out."""
    path = tmp_path / "options.s"
    turn = ["buffer_load_dword v20, v21, s[4:7], 0 offen", "s_waitcnt vmcnt(0)", "s_cbranch_scc1 rest", "s_nop 15",
            "rest:", *["ds_read_b128 v[8:11], v12"] * 20, "inner:", "s_nop 3", "s_cbranch_scc0 inner"]  # fmt: skip
    path.write_text(LOOP.replace("turn:\n", "turn:\n" + "\n".join(turn) + "\n"))

    def clocks(*options: object) -> float:
        result = invoke("cycles", path, "--json", "--loop", "turn", "--turns", "inner=1", *options)
        assert result.exit_code == 0, result.output
        return float(json.loads(result.output)["clocks"])

    usual = clocks()
    assert clocks("--load-latency", 2000) == pytest.approx(usual + 1000, rel=0.05)
    assert clocks("--lds-ways", 4) > usual
    assert clocks("--workgroups", 8) > usual
    assert clocks("--take", "rest") < usual
    assert clocks("--turns", "inner=9") > usual + 8 * 16


def test_a_code_object(invoke: Invoke, tmp_path: Path):
    """The bytes that an assembler made are read: four MFMAs of 16 clocks and a branch behind the last."""
    from tilekit.runtime.assembler import assemble

    text = Path(__file__).parents[2].joinpath("examples", "store.s").read_text()
    turn = "\n".join(["turn:", *(MFMA.format(4 * n, 4 * n + 3) for n in range(4)), "s_cbranch_scc1 turn", "\ts_endpgm"])
    text = text.replace("s_endpgm", turn, 1).replace(".amdhsa_next_free_vgpr 8", ".amdhsa_next_free_vgpr 24")
    text = text.replace(".vgpr_count: 8", ".vgpr_count: 24").replace(".agpr_count: 0", ".agpr_count: 16")
    image = assemble(text, "gfx950", kernel_name="store").image
    (tmp_path / "store.hsaco").write_bytes(image)
    facts = json.loads(invoke("cycles", tmp_path / "store.hsaco", "--json").output)
    assert facts["clocks"] == 3 * 16 + 4 + 32
    assert (facts["chip"], facts["kernel"], facts["waves"]) == ("gfx950", "store", 1)


@pytest.mark.parametrize(
    ("options", "code", "word"),
    [
        (["--loop", "tern"], "TK-CYCLES-003", "'turn'"),
        (["--turns", "inner"], "TK-CYCLES-001", "inner=1"),
        (["--waves", "99"], "TK-CYCLES-001", "16"),
        (["--target", "sm_90a"], "TK-CYCLES-001", "gfx950"),
        (["--entry", "sart"], "TK-CYCLES-001", "label"),
    ],
)
def test_options_that_are_not_legal(invoke: Invoke, file: Path, options: list[str], code: str, word: str):
    """Exit code 2, the error's code, and the nearest legal value."""
    result = invoke("cycles", file, "--json", *options)
    facts = json.loads(result.output)
    assert (result.exit_code, facts["code"]) == (2, code)
    assert word in facts["error"]


def test_files_that_are_not_such(invoke: Invoke, tmp_path: Path):
    """No file, a damaged code object, and a text that is none."""
    assert invoke("cycles", tmp_path / "none.s").exit_code == 2
    for name, data in (
        ("cut.co", b"\x7fELF" + bytes(20)),
        ("text.s", b"hello\n"),
        ("no_loop.s", b"start:\n s_endpgm\n"),
    ):
        path = tmp_path / name
        path.write_bytes(data)
        result = invoke("cycles", path, "--target", "gfx950")
        assert result.exit_code == 2, result.output
        assert "TK-CYCLES-" in result.output
