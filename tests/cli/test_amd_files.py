"""AMD's side of ``tilekit emulate``, ``lint`` and ``disassemble``: texts and code objects, right ones and odd ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.runtime.gcn_kernels import STORE, module
from tests.runtime.gcn_smoke import SMOKE
from tilekit.runtime.assembler import assemble

pytest.importorskip("ziglang")

ADD, TILE, _ = SMOKE
PTX = ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k() { ret; }\n"
CALL = ("--grid", 2, "--arg", "f32[300]=range", "--arg", "f32[300]=ones", "--arg", "f32[300]=zeros", "--arg", "u32:300")
Files = Callable[[str, "str | bytes"], Path]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """Write a file."""

    def write(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def image(chip: str = "gfx950") -> bytes:
    """The code object of vector addition."""
    return assemble(ADD.text(chip), chip, kernel_name="add").image


@pytest.mark.parametrize("chip", ["gfx942", "gfx950"])
@pytest.mark.parametrize("form", ["add.s", "add.hsaco", "add"])
def test_emulate_runs_text_and_code_objects(invoke: Any, files: Files, form: str, chip: str, tmp_path: Path) -> None:
    """The chip is the file's own, the block its metadata's; buffers are printed and saved."""
    path = files(form, ADD.text(chip) if form == "add.s" else image(chip))
    result = invoke("emulate", path, *CALL, "--save", f"2={tmp_path / 'z.npy'}", "--print", 2)
    assert result.exit_code == 0, result.output
    assert "add: grid 2x1x1 workgroups, block 256x1x1" in result.stdout
    assert "nothing found" in result.stdout
    assert (np.load(tmp_path / "z.npy") == np.arange(300) + 1).all()
    facts = json.loads(invoke("emulate", path, *CALL, "--json").stdout)
    assert facts["clean"]
    assert facts["block"] == [256, 1, 1]
    assert invoke("emulate", path, *CALL, "--explore", 3).exit_code == 0


def test_the_content_says_the_language(invoke: Any, files: Files) -> None:
    """PTX in a file called .s, and AMDGCN in one called .ptx, are run as what they are."""
    assert invoke("emulate", files("k.s", PTX), "--block", 32).exit_code == 0
    assert invoke("lint", files("k.s", PTX)).exit_code == 0
    assert invoke("emulate", files("add.ptx", ADD.text("gfx942")), *CALL).exit_code == 0
    assert invoke("lint", files("add.ptx", ADD.text("gfx942"))).exit_code == 0


def overrun() -> str:
    """A kernel that asks for more LDS than the chip has."""
    return module("", lds=163844)


BAD: list[tuple[str, str, Callable[[], str | bytes], tuple[object, ...], int, str]] = [
    ("empty", "k.s", lambda: "", (), 2, "is empty"),
    ("blank", "k.s", lambda: " \n\n", (), 2, "is empty"),
    ("truncated code object", "k.hsaco", lambda: image()[:-400], (), 2, "cannot be taken for a code object: the image"),
    ("header of one", "k.hsaco", lambda: image()[:40], (), 2, "cut or damaged"),
    ("another machine's ELF", "k.hsaco", lambda: image()[:18] + b"\x3e\0" + image()[20:], (), 2, "machine 62"),
    ("bundle", "k.co", lambda: b"__CLANG_OFFLOAD_BUNDLE__" + bytes(64), (), 2, "clang-offload-bundler --unbundle"),
    ("bytes", "k.bin", lambda: b"\1\2\0\3", (), 2, "neither text nor an AMD code object"),
    ("another chip's text", "k.s", lambda: ADD.text("gfx942"), ("--target", "gfx950", *CALL), 2,
     "the module is for gfx942, the device is gfx950"),
    ("another chip's code object", "k.hsaco", image, ("--target", "gfx942", *CALL), 2, "the module is for gfx950"),
    ("chip that is not known", "k.s", lambda: ADD.text("gfx942").replace("gfx942", "gfx90a"), CALL, 2, "gfx90a"),
    ("a target of the other language", "k.s", lambda: ADD.text("gfx942"), ("--target", "sm_90a"), 2,
     "legal: gfx942, gfx950: "),
    ("an AMD target for PTX", "k.ptx", lambda: PTX, ("--target", "gfx950"), 2, "is PTX"),
    ("a target with a slip", "k.s", lambda: ADD.text("gfx942"), ("--target", "gfx943"), 2, "nearest legal: 'gfx942'"),
    ("unknown kernel", "k.s", lambda: ADD.text("gfx950"), ("--entry", "ad", *CALL), 2, "did you mean 'add'"),
    ("no arguments", "k.s", lambda: ADD.text("gfx950"), (), 2, "0 arguments for the 4 parameters of kernel 'add'"),
    ("too few arguments", "k.s", lambda: ADD.text("gfx950"), ("--arg", "null"), 2, "1 arguments for the 4"),
    ("a number for a pointer", "k.s", lambda: ADD.text("gfx950"), (*CALL[:2], "--arg", "u32:1", *CALL[4:]), 2,
     "args[0]='4 bytes (uint32)'"),
    ("a tensor map", "k.s", lambda: ADD.text("gfx950"), ("--arg", "f32[64]=ones", "--arg", "map:0,box=8"), 2,
     "gfx950 has no tensor maps"),
    ("a null pointer", "k.s", lambda: ADD.text("gfx950"), (*CALL[:2], "--arg", "null", *CALL[4:]), 1, "null pointer"),
    ("no metadata, no block", "k.s", lambda: module(STORE, metadata=False), (), 2, "threads of a workgroup"),
    ("no metadata, no arguments", "k.s", lambda: module(STORE, metadata=False), ("--block", 64), 2,
     "16 bytes, as .amdhsa_kernarg_size of small says"),
    ("too many threads", "k.s", lambda: ADD.text("gfx950"), (*CALL, "--block", 512), 2, "at most 256 threads"),
    ("LDS of the launch", "k.s", lambda: ADD.text("gfx950"), (*CALL, "--shared", 163844), 2, "nearest|0 to 163840"),
    ("LDS of the kernel", "k.s", overrun, ("--arg", "null", "--arg", "u32:1"), 2, "163844 bytes of LDS"),
    ("an access outside of LDS", "k.s",
     lambda: module("  v_mov_b32_e32 v1, 0x4000\n  ds_write_b32 v1, v0\n", kernarg=0), (), 1, "LDS"),
    ("PTX's options", "k.s", lambda: ADD.text("gfx950"), (*CALL, "--cluster", 2), 2, "--cluster: for PTX only"),
    ("no kernel", "k.s", lambda: ".text\nk:\n  s_endpgm\n", (), 2, "a file with a kernel"),
    ("a syntax error", "k.s", lambda: ADD.text("gfx950").replace("b32 s11,", "b32 s11]"), CALL, 1, "line 10"),
    ("no such instruction", "k.s", lambda: ADD.text("gfx950").replace("add_f32", "add_f33"), CALL, 1, "v_add_f32"),
    ("prose", "k.s", lambda: "Dear reader,\nthis is no kernel.\n", (), 1, "at line 1"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "arguments", "code", "says"), [
    pytest.param(*case[1:], id=case[0]) for case in BAD
])  # fmt: skip
def test_what_cannot_be_run(
    invoke: Any, files: Files, name: str, content: Any, arguments: tuple[object, ...], code: int, says: str
) -> None:
    """One message says what is wrong and what is legal; nothing runs, and no defect is reported."""
    result = invoke("emulate", files(name, content()), *arguments)
    assert result.exit_code == code, result.output
    assert any(part in result.stderr for part in says.split("|")), result.stderr
    assert "TK-CLI-012" not in result.stderr
    assert len(result.stderr.splitlines()) <= 8


@pytest.mark.parametrize("command", ["emulate", "lint", "disassemble"])
def test_folders_and_missing_files(invoke: Any, files: Files, tmp_path: Path, command: str) -> None:
    """A folder is no file, and a name with a slip gets the nearest one there."""
    files("kernel.hsaco", image())
    result = invoke(command, tmp_path)
    assert (result.exit_code, "cannot be read: Is a directory" in result.stderr) == (2, True)
    assert f"nearest: {tmp_path}\n" not in result.stderr
    result = invoke(command, tmp_path / "kernle.hsaco")
    assert (result.exit_code, "kernel.hsaco" in result.stderr) == (2, True)


def test_lint_of_a_code_object(invoke: Any, files: Files) -> None:
    """What lint finds has the line of the listing that disassemble prints."""
    text = TILE.text("gfx950").replace("  s_nop 15\n  s_nop 7\n", "")
    path = files("tile.hsaco", assemble(text, "gfx950", kernel_name="tile").image)
    result = invoke("lint", path)
    assert result.exit_code == 1
    remark, *_ = json.loads(invoke("lint", path, "--json").stdout)["remarks"]
    assert remark["rule"] == "hazard"
    listing = invoke("disassemble", path).stdout.splitlines()
    assert "global_store_dword" in listing[remark["line"] - 1]
    assert invoke("lint", files("add.hsaco", image())).exit_code == 0
    assert invoke("lint", path, "--target", "gfx943").exit_code == 2
    assert invoke("lint", files("cut.hsaco", image()[:500])).exit_code == 2


def test_lint_says_that_there_is_no_kernel(invoke: Any, files: Files) -> None:
    """A text in which nothing can be checked is not clean."""
    path = files("k.s", '.amdgcn_target "amdgcn-amd-amdhsa--gfx950"\n.text\nk:\n  s_endpgm\n')
    result = invoke("lint", path)
    assert (result.exit_code, "describes no kernel" in result.stdout) == (1, True)


def test_disassemble_prints_text_that_assembles(invoke: Any, files: Files, tmp_path: Path) -> None:
    """On the screen, into a file and as JSON it is one text, of which the assembler makes a kernel that runs."""
    path = files("add.hsaco", image("gfx942"))
    shown = invoke("disassemble", path)
    assert shown.exit_code == 0
    out = tmp_path / "again.s"
    assert invoke("disassemble", path, "--out", out).stdout.strip() == str(out)
    assert out.read_text() == shown.stdout == json.loads(invoke("disassemble", path, "--json").stdout)["text"]
    assert assemble(out.read_text(), "gfx942", kernel_name="add").resources.vgprs == 8
    assert invoke("emulate", out, *CALL).exit_code == 0


@pytest.mark.parametrize(
    ("content", "says"),
    [(PTX, "is no AMD code object"), ("", "nothing"), (b"\x7fELF", "machine"), (image()[:900], "cannot be taken")],
)
def test_what_cannot_be_disassembled(invoke: Any, files: Files, content: str | bytes, says: str) -> None:
    """Texts, other images and cut ones get one message."""
    result = invoke("disassemble", files("k.hsaco", content))
    assert (result.exit_code, says in result.stderr) == (2, True), result.stderr
    assert "Traceback" not in result.output


def test_disassemble_refuses_a_folder_that_is_not_there(invoke: Any, files: Files, tmp_path: Path) -> None:
    """Before anything is read."""
    result = invoke("disassemble", files("k.hsaco", image()), "--out", tmp_path / "no" / "k.s")
    assert (result.exit_code, "cannot be written" in result.stderr) == (2, True)


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("seed", range(40))
def test_damaged_code_objects(invoke: Any, files: Files, seed: int) -> None:
    """Bytes changed or cut at random end in a message or in a run, never in a traceback or a hang."""
    rng = np.random.default_rng(seed)
    data = bytearray(image())
    for place in rng.integers(0, len(data), int(rng.integers(1, 6))):
        data[place] = rng.integers(256)
    if rng.random() < 0.3:
        del data[int(rng.integers(1, len(data))) :]
    path = files("k.hsaco", bytes(data))
    for arguments in (("emulate", path, *CALL, "--step-budget", 10_000), ("lint", path), ("disassemble", path)):
        result = invoke(*arguments)
        assert result.exit_code in (0, 1, 2), result.output
        assert result.exception is None or isinstance(result.exception, SystemExit), (arguments, result.exception)
