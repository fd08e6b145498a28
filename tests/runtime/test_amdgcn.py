"""Assembling AMDGCN with LLVM's own assembler and linker: code objects, resources, errors that lead back to Python."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.runtime.gcn_kernels import STORE, module
from tilekit.emulator.gcn.binary.code_object import CodeObject
from tilekit.errors import ArgumentError, AssemblerError, AssemblerNotFound
from tilekit.runtime import amd_toolchain, amdgcn
from tilekit.runtime.assembler import assemble
from tilekit.runtime.cache import default_cache
from tilekit.runtime.resources import GcnResources

CHIPS = ("gfx942", "gfx950")


@pytest.mark.parametrize("chip", CHIPS)
def test_assembles_a_code_object_that_every_setting_of_the_chip_loads(chip: str) -> None:
    """The image is linked, of version 5, and demands nothing of xnack and sramecc."""
    result = assemble(module(STORE, chip=chip), chip, kernel_name="small")
    image = CodeObject.read(result.image)
    assert (image.chip.name, image.version) == (chip, 5)
    assert image.flags == {"gfx942": 0x54C, "gfx950": 0x54F}[chip]
    assert image.kernels["small"].metadata[".kernarg_segment_size"] == 16
    assert re.fullmatch(r"(ziglang|ROCm clang) \(LLVM [\d.]+.*\)", result.assembler_id)
    assert (result.kernel_name, result.target) == ("small", chip)


@pytest.mark.parametrize(
    ("text", "resources"),
    [
        ({}, GcnResources(8, vgprs=8, agprs=0, sgprs=24, waves_per_simd=8)),
        ({"vgprs": 65}, GcnResources(72, vgprs=8, agprs=64, sgprs=24, waves_per_simd=7)),
        ({"vgprs": 512, "accum": 256}, GcnResources(512, vgprs=256, agprs=256, sgprs=24, waves_per_simd=1)),
        ({"vgprs": 128, "accum": 128, "sgprs": 96}, GcnResources(128, vgprs=128, agprs=0, sgprs=104, waves_per_simd=4)),
        ({"scratch": 48}, GcnResources(8, 48, vgprs=8, agprs=0, sgprs=24, waves_per_simd=8)),
        ({"lds": 65536, "threads": 256}, GcnResources(8, 0, 65536, vgprs=8, agprs=0, sgprs=24, waves_per_simd=2)),
        ({"lds": 163840, "threads": 512}, GcnResources(8, 0, 163840, vgprs=8, agprs=0, sgprs=24, waves_per_simd=2)),
        ({"lds": 20000, "threads": 1024}, GcnResources(8, 0, 20000, vgprs=8, agprs=0, sgprs=24, waves_per_simd=8)),
    ],
)
def test_resources_are_those_of_the_descriptor(text: dict[str, int], resources: GcnResources) -> None:
    """Registers of each kind as allocated, LDS, scratch, and the waves that they leave room for."""
    assert assemble(module(STORE, **text), "gfx950", kernel_name="small").resources == resources


@pytest.mark.parametrize(
    ("instruction", "says"),
    [
        ("v_frobnicate_b32 v0, v1", "invalid instruction"),
        ("v_mov_b32_e32 v999, v1", "register index is out of range"),
        ("ds_read_b64_tr_b16 v[0:1], v2", "instruction not supported on this GPU"),
        ("buffer_load_dwordx4 v1, s[0:3], 0 offen lds", "invalid operand"),
    ],
)
def test_rejection_names_the_line_and_the_python_line(instruction: str, says: str) -> None:
    """What the assembler says stands with the text's line and who emitted it; the log is kept."""
    text = module(f"  {instruction} //@ mma Mfma.multiply tile_op/mfma.py:42\n", chip="gfx942")
    with pytest.raises(AssemblerError) as caught:
        assemble(text, "gfx942", kernel_name="small")
    number = next(i for i, line in enumerate(text.splitlines(), 1) if instruction in line)
    assert re.search(rf"line {number}: .*{says}", str(caught.value))
    assert instruction in str(caught.value)
    assert "emitted by Mfma.multiply at tile_op/mfma.py:42, role mma" in str(caught.value)
    assert caught.value.code == "TK-ASM-001"
    assert "<stdin>" in caught.value.log


def test_a_symbol_that_is_nowhere_is_an_error_of_the_linker() -> None:
    """What only the linker finds is an error too, in its words."""
    body = "  s_getpc_b64 s[2:3]\n  s_add_u32 s2, s2, elsewhere@rel32@lo+4\n"
    with pytest.raises(AssemblerError, match=r"(?s)could not link kernel 'small'.*elsewhere") as caught:
        assemble(module(body + ".protected elsewhere\n"), "gfx950", kernel_name="small")
    assert caught.value.code == "TK-ASM-001"


@pytest.mark.parametrize(
    ("chip", "changes", "says"),
    [
        ("gfx942", {"lds": 65540}, r"LDS: 65540 bytes a workgroup, 4 more than gfx942 has; at most 65536"),
        ("gfx950", {"lds": 163844}, r"LDS: 163844 bytes a workgroup, 4 more than gfx950 has; at most 163840"),
        ("gfx950", {"metadata": False}, r"no kernel whose \.symbol is small\.kd"),
    ],
)
def test_what_the_assembler_lets_pass_and_no_launch_does(chip: str, changes: dict[str, object], says: str) -> None:
    """LDS beyond the chip's and missing metadata are refused, from a fresh run and from the cache alike."""
    for _ in range(2):
        with pytest.raises(AssemblerError, match=says) as caught:
            assemble(module(STORE, chip=chip, **changes), chip, kernel_name="small")
        assert caught.value.code == "TK-ASM-009"


def test_metadata_that_contradicts_the_descriptor_is_refused() -> None:
    """A runtime packs arguments by the metadata and the hardware reads them by the descriptor: both are named."""
    text = module(STORE).replace(".kernarg_segment_size: 16", ".kernarg_segment_size: 8")
    with pytest.raises(AssemblerError, match=r"\.kernarg_segment_size is 8, but \.amdhsa_kernarg_size is 16"):
        assemble(text, "gfx950", kernel_name="small")


@pytest.mark.parametrize(("target", "name", "fact"), [("gfx9", "small", "gfx942"), ("gfx950", "other", "small")])
def test_wrong_target_or_kernel_is_an_argument_error(target: str, name: str, fact: str) -> None:
    """A target that is none, and a kernel that is not in the module, are named with what is legal."""
    with pytest.raises(ArgumentError, match=fact) as caught:
        assemble(module(STORE), target, kernel_name=name)
    assert caught.value.code == "TK-ASM-007"


def test_second_assembly_comes_from_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """One entry a kernel: the same text is assembled once; another text, or a damaged entry, anew."""
    runs: list[str] = []
    real = amdgcn._run_tools

    def counted(*args: object) -> object:
        runs.append("run")
        return real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(amdgcn, "_run_tools", counted)
    first = assemble(module(STORE), "gfx950", kernel_name="small")
    assert assemble(module(STORE), "gfx950", kernel_name="small") == first
    assert (len(runs), default_cache().stats().entries) == (1, 1)
    for path in default_cache().folder.iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    assert assemble(module(STORE), "gfx950", kernel_name="small").image == first.image
    assert len(runs) == 2
    assemble(module(STORE) + "\n", "gfx950", kernel_name="small")
    assert (len(runs), default_cache().stats().entries) == (3, 2)


def test_no_assembler_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """With neither the wheel nor ROCm the one error names the pip command."""
    monkeypatch.setattr(amd_toolchain, "_wheel", lambda: iter(()))
    monkeypatch.setattr(amd_toolchain, "_rocm_folders", lambda: iter(()))
    with pytest.raises(AssemblerNotFound, match="pip install ziglang") as caught:
        assemble(module(STORE), "gfx950", kernel_name="small")
    assert caught.value.code == "TK-ASM-002"


def rocm(folder: Path, clang: str) -> Path:
    """Make a ROCm installation in a folder: clang as a script, and the real linker."""
    programs = folder / "llvm" / "bin"
    programs.mkdir(parents=True)
    zig = next(amd_toolchain._wheel())
    for name, script in (("clang", clang), ("ld.lld", f'#!/bin/sh\nexec {zig} ld.lld "$@"\n')):
        (programs / name).write_text(script.replace("ZIG", str(zig)))
        (programs / name).chmod(0o755)
    return folder


def test_rocm_stands_in_for_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the wheel a ROCm installation's clang assembles, and makes the same image."""
    expected = assemble(module(STORE), "gfx950", kernel_name="small")
    script = '#!/bin/sh\n[ "$1" = --version ] && exec ZIG clang "$@"\nexec ZIG "$@"\n'
    monkeypatch.setenv("ROCM_PATH", str(rocm(tmp_path / "rocm", script)))
    monkeypatch.setattr(amd_toolchain, "_wheel", lambda: iter(()))
    found = assemble(module(STORE), "gfx950", kernel_name="small")
    assert found.assembler_id.startswith("ROCm clang (LLVM ")
    assert found.image == expected.image


def test_a_clang_that_does_not_answer_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that answers otherwise is refused with what it said."""
    monkeypatch.setenv("ROCM_PATH", str(rocm(tmp_path / "rocm", "#!/bin/sh\necho hello\n")))
    monkeypatch.setattr(amd_toolchain, "_wheel", lambda: iter(()))
    with pytest.raises(AssemblerNotFound, match="hello") as caught:
        amd_toolchain.find_amd_tools()
    assert caught.value.code == "TK-ASM-006"
