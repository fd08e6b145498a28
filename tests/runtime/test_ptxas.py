"""Assembling with the real ptxas: resources, errors that lead back to Python, caching."""

from __future__ import annotations

import re
import stat
import struct
from pathlib import Path

import pytest

from tilekit.errors import ArgumentError, AssemblerError, AssemblerNotFound
from tilekit.runtime import ptxas, ptxas_log, toolchain
from tilekit.runtime.assembler import assemble, disassemble
from tilekit.runtime.cache import default_cache
from tilekit.runtime.diagnostics import Diagnostic, with_source_lines
from tilekit.runtime.parameters import F32, U32, Pointer, pack
from tilekit.runtime.resources import PtxResources
from tilekit.settings import settings

SPILL_LOG = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'a' for 'sm_90a'
ptxas info    : Function properties for a
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 400 bytes cmem[0], 8 bytes cmem[2]
ptxas info    : Compiling entry function 'b' for 'sm_90a'
ptxas info    : Function properties for b
    1024 bytes stack frame, 1020 bytes spill stores, 1016 bytes spill loads
ptxas info    : Used 168 registers, used 3 barriers, 1024 bytes cumulative stack size, 512 bytes smem
"""


def test_assembles_and_reports_resources(small_kernel: str) -> None:
    """The cubin is an ELF image; registers, barriers and shared memory are those of the text."""
    result = assemble(small_kernel, "sm_90a", kernel_name="small")
    assert result.image.startswith(b"\x7fELF")
    assert result.resources == PtxResources(registers=168, barriers=2, static_shared_bytes=256)
    assert re.fullmatch(r"ptxas \d+\.\d+\.\d+ \(\S+\)", result.assembler_id)
    assert (result.kernel_name, result.target) == ("small", "sm_90a")


def test_disassembly_shows_that_setmaxnreg_survived(small_kernel: str) -> None:
    """The SASS of the cubin has the instruction that other ways of assembling drop."""
    sass = disassemble(assemble(small_kernel, "sm_90a", kernel_name="small").image)
    assert "USETMAXREG" in sass
    assert "STG" in sass


def test_disassembling_no_cubin_is_an_error() -> None:
    """Bytes that are no image are refused with what the disassembler said."""
    with pytest.raises(AssemblerError, match="rejected a cubin"):
        disassemble(b"not an ELF")


def test_rejection_names_the_ptx_line_and_the_python_line(small_kernel: str) -> None:
    """A syntax error shows message, PTX line and its provenance; the log is kept."""
    broken = small_kernel.replace("st.global.u32", "st.globl.u32")
    with pytest.raises(AssemblerError) as caught:
        assemble(broken, "sm_90a", kernel_name="small")
    text = str(caught.value)
    number = next(i for i, line in enumerate(broken.splitlines(), 1) if "globl" in line)
    assert f"line {number}: Unknown modifier '.globl'" in text
    assert "@%first st.globl.u32 [%address], %v;" in text
    assert "emitted by Storer.store at tile_io/store.py:12, role store" in text
    assert caught.value.code == "TK-ASM-001"
    assert "Ptx assembly aborted" in caught.value.log


def test_dropped_setmaxnreg_is_an_error_with_its_remedy(small_kernel: str) -> None:
    """C7508 is mere information to ptxas, and an error here, from a fresh run and from the cache alike."""
    unpinned = small_kernel.replace(".minnctapersm 1\n", "")
    for _ in range(2):
        with pytest.raises(AssemblerError, match=r"C7508.*\.minnctapersm 1") as caught:
            assemble(unpinned, "sm_90a", kernel_name="small")
        assert caught.value.code == "TK-ASM-003"


def test_local_memory_is_an_error(small_kernel: str) -> None:
    """A stack frame is refused, with its size."""
    local = small_kernel.replace(
        "  bar.sync 1, 384;\n",
        ".local .align 16 .b8 frame[64];\n .reg .u64 %l, %t; .reg .u32 %i;\n mov.u32 %i, %tid.x; cvt.u64.u32 %t, %i;\n"
        " mov.u64 %l, frame; add.u64 %l, %l, %t; st.local.u32 [%l], %v; ld.local.u32 %v, [%l+4];\n",
    )
    with pytest.raises(AssemblerError, match="64 bytes of stack") as caught:
        assemble(local, "sm_90a", kernel_name="small")
    assert caught.value.code == "TK-ASM-004"


def test_second_assembly_comes_from_the_cache(small_kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same text is assembled once; a different text, target or damaged entry runs ptxas again."""
    runs: list[str] = []
    real = ptxas._run_ptxas

    def counted(*args: object) -> object:
        runs.append("run")
        return real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(ptxas, "_run_ptxas", counted)
    first = assemble(small_kernel, "sm_90a", kernel_name="small")
    assert assemble(small_kernel, "sm_90a", kernel_name="small") == first
    assert len(runs) == 1
    assemble(small_kernel + "\n", "sm_90a", kernel_name="small")
    assert len(runs) == 2
    for path in default_cache().folder.iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    assert assemble(small_kernel, "sm_90a", kernel_name="small").image == first.image
    assert len(runs) == 3


@pytest.mark.parametrize(("target", "name", "fact"), [("90a", "small", "sm_90a"), ("sm_90a", "other", "small")])
def test_wrong_target_or_entry_is_an_argument_error(small_kernel: str, target: str, name: str, fact: str) -> None:
    """A target that is none, and an entry that is not in the module, are named with what is legal."""
    with pytest.raises(ArgumentError, match=fact):
        assemble(small_kernel, target, kernel_name=name)


def parameter_offsets(signature: str) -> list[int]:
    """Return where an image expects each parameter: its EIATTR_KPARAM_INFO records."""
    ptx = f".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry layout({signature}) {{ ret; }}\n"
    cubin = assemble(ptx, "sm_90a", kernel_name="layout").image
    starts = [match.end() for match in re.finditer(rb"\x04\x17\x0c\x00\x00{4}", cubin)]
    return [offset for _, offset in sorted(struct.unpack_from("<HH", cubin, start) for start in starts)]


def test_scalars_are_laid_out_as_ptxas_lays_them_out() -> None:
    """Without tensor maps an image has each parameter at the offset that `pack` computes."""
    packed = pack([U32(0), Pointer(0), F32(0), U32(0)], lambda _: bytes(128))
    offsets = parameter_offsets(".param .u32 a, .param .u64 b, .param .f32 c, .param .u32 d")
    assert tuple(offsets) == packed.offsets == (0, 8, 16, 20)


def test_ptxas_aligns_maps_to_the_constant_bank_not_to_the_parameters() -> None:
    """An image may keep a map at offset 48, the reason why a launch passes pointers and never a packed buffer."""
    assert parameter_offsets(".param .align 64 .b8 map[128], .param .u32 n") == [-0x210 % 64, 176]


def test_log_is_read_entry_by_entry() -> None:
    """Resources of several entries are kept apart, spills and constant banks included."""
    assert ptxas_log.read_resources(SPILL_LOG) == {
        "a": PtxResources(registers=32, barriers=1, constant_bytes=408),
        "b": PtxResources(
            168, 1024, spill_store_bytes=1020, spill_load_bytes=1016, static_shared_bytes=512, barriers=3
        ),
    }


@pytest.mark.parametrize("code", ["C7504", "C7508", "C7510", "C7511", "C7512", "C7514", "C7515", "C7517", "C7518"])
def test_every_performance_loss_is_recognised(code: str) -> None:
    """Each code that means a slow kernel is found; other information is not."""
    log = f"ptxas info    : ({code}) some text in function 'k'\nptxas info    : (C7600) harmless\n"
    assert [loss.message.startswith(f"({code})") for loss in ptxas_log.performance_losses(log)] == [True]


def test_long_lists_of_errors_are_cut() -> None:
    """Only the first errors are printed; the rest are counted."""
    messages = [Diagnostic("error", number, f"message {number}") for number in range(1, 12)]
    text = with_source_lines("\n".join(f"line{n}" for n in range(1, 12)), messages)
    assert "message 8" in text
    assert "message 9" not in text
    assert "3 more" in text


def test_no_ptxas_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any ptxas the error names the wheel and the variable."""
    monkeypatch.setattr(toolchain, "_folders", lambda: iter(()))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(AssemblerNotFound, match=r"nvidia-cuda-nvcc.*TILEKIT_PTXAS"):
        toolchain.find_ptxas()
    with pytest.raises(AssemblerNotFound, match="nvidia-cuda-nvdisasm"):
        toolchain.find_disassembler()


def test_cuobjdump_stands_in_for_nvdisasm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where only cuobjdump exists it is found, and run with its own option."""
    fake = tmp_path / "cuobjdump"
    fake.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo "Cuda compilation tools, release 13.0, V13.0.88" && exit\n'
        'echo "sass by $1"\n'
    )
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(toolchain, "_folders", lambda: iter([tmp_path]))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert toolchain.find_disassembler().version == (13, 0, 88)
    assert disassemble(b"") == "sass by --dump-sass\n"


def test_program_that_is_no_ptxas_is_refused(tmp_path: Path) -> None:
    """A TILEKIT_PTXAS that answers otherwise is refused with what it said."""
    fake = tmp_path / "ptxas"
    fake.write_text("#!/bin/sh\necho hello\n")
    fake.chmod(0o755)
    with settings.override(ptxas=fake), pytest.raises(AssemblerNotFound, match="hello"):
        toolchain.find_ptxas()


def test_chosen_ptxas_is_used(tmp_path: Path, small_kernel: str) -> None:
    """`settings.ptxas` wins over the search, and its answer goes into the error."""
    fake = tmp_path / "ptxas"
    fake.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo "Cuda compilation tools, release 12.4, V12.4.99" && exit 0\n'
        "echo 'ptxas fatal   : Memory allocation failure' >&2; exit 2\n"
    )
    fake.chmod(0o755)
    with settings.override(ptxas=fake), pytest.raises(AssemblerError, match=r"ptxas 12\.4\.99.*\n.*Memory allocation"):
        assemble(small_kernel, "sm_90a", kernel_name="small")
