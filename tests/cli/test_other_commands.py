"""``tilekit dump``, ``bench``, ``doctor``, ``list``, and the command's front door."""

from __future__ import annotations

import json
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

import tilekit
from tilekit.bench import machine as machines
from tilekit.errors import AssemblerNotFound, DriverError, HipError
from tilekit.kernels.blockwise.arguments import BlockwiseArguments
from tilekit.kernels.conv2d.arguments import ConvArguments
from tilekit.kernels.matmul.arguments import MatmulArguments
from tilekit.kernels.registry import families
from tilekit.runtime import amd_toolchain, driver, hip, toolchain
from tilekit.targets import TARGETS


@pytest.mark.parametrize(
    ("what", "words"), [("explain", "roles of it"), ("ptx", "ptx of it"), ("isa", "sass of it"), ("resources", "168")]
)
def test_dump_prints_one_part(invoke: Any, kernels: Any, what: str, words: str) -> None:
    """Each part alone is the whole of stdout, to be piped on."""
    result = invoke("dump", "matmul", "--what", what)
    assert result.exit_code == 0, result.output
    assert words in result.stdout
    assert "----" not in result.stdout


def test_dump_builds_what_the_options_say(invoke: Any, kernels: Any) -> None:
    """Types, functions, batch and tile reach the spec and the config."""
    options = (
        "--dtype",
        "f16",
        "--out-dtype",
        "f32",
        "--bias",
        "--activation",
        "silu",
        "--batched",
        "--tile",
        "128x64",
    )
    assert invoke("dump", "matmul", *options).exit_code == 0
    (call,) = kernels.compile
    assert call["spec"].name == "matmul_f16_f16_f32_kk_batched_bias_f32_silu"
    assert call["config"].tile == (128, 64)


def test_dump_writes_every_part_to_a_folder(invoke: Any, kernels: Any, tmp_path: Any) -> None:
    """--what all --out makes the folder and one file a part, and prints their names."""
    folder = tmp_path / "new" / "folder"
    result = invoke("dump", "matmul", "--what", "all", "--out", folder)
    assert result.exit_code == 0, result.output
    names = sorted(path.name for path in folder.iterdir())
    stem = "matmul_bf16_bf16_bf16_kk"
    assert names == [f"{stem}.ptx", f"{stem}.resources.json", f"{stem}.sass", f"{stem}.txt"]
    assert json.loads((folder / f"{stem}.resources.json").read_text())["registers"] == 168
    assert sorted(result.stdout.split()) == sorted(str(folder / name) for name in names)


def test_dump_in_json_holds_every_part(invoke: Any, kernels: Any) -> None:
    """One object with the name, the config and what was asked for."""
    whole = json.loads(invoke("dump", "matmul", "--what", "all", "--json").stdout)
    assert (whole["assembly"], whole["isa"], whole["explain"]) == ("ptx of it", "sass of it", "roles of it")
    assert whole["target"] == "sm_90a"


def test_dump_ranks_what_was_tried(invoke: Any, kernels: Any, tmp_path: Any) -> None:
    """--what ranking prints every candidate for the shape, the picked one first; it is a file like the others."""
    shape = ("--m", 2048, "--n", 2048, "--k", 2048)
    result = invoke("dump", "matmul", "--target", "sm_100a", *shape, "--what", "ranking")
    assert result.exit_code == 0, result.output
    head, first, *rest = result.stdout.splitlines()
    assert head.split() == ["waves", "tiles", "tensor", "shared", "L2", "DRAM", "power", "total", "config"]
    assert first.endswith(str(kernels.compile[0]["config"]))
    assert len(rest) > 20
    assert kernels.compile[0]["target"] == "sm_100a"
    invoke("dump", "matmul", "--what", "ranking", "--out", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["matmul_bf16_bf16_bf16_kk.ranking.txt"]


def test_dump_refuses_an_unknown_part_and_an_unwritable_folder(invoke: Any, kernels: Any, tmp_path: Any) -> None:
    """Both are bad usage, with the nearest part and the system's reason."""
    result = invoke("dump", "matmul", "--what", "ptxx")
    assert (result.exit_code, "nearest legal: 'ptx'" in result.stderr) == (2, True)
    (tmp_path / "file").write_text("")
    result = invoke("dump", "matmul", "--out", tmp_path / "file")
    assert (result.exit_code, "TK-CLI-006" in result.stderr) == (2, True)


def test_list_shows_every_family(invoke: Any) -> None:
    """The registry's families, as a table and as JSON."""
    assert "matmul" in invoke("list").stdout
    rows = json.loads(invoke("list", "--json").stdout)
    assert {"name", "summary", "targets"} == set(rows[0])
    matmul = next(row for row in rows if row["name"] == "matmul")
    assert matmul["targets"] == ["sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a", "gfx942", "gfx950"]


def test_bench_without_a_gpu_exits_with_3(invoke: Any, kernels: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says that a GPU is needed, and why there is none."""
    monkeypatch.setattr(driver, "why_unavailable", lambda: "no NVIDIA driver")
    result = invoke("bench", "matmul")
    assert result.exit_code == 3
    assert "benchmarks need a GPU: no NVIDIA driver" in result.stderr


def test_bench_reads_its_shapes_before_it_asks_for_a_gpu(invoke: Any, kernels: Any) -> None:
    """A shape that cannot be read, and types that no instruction takes, are bad usage."""
    assert invoke("bench", "matmul", "--shape", "4096").exit_code == 2
    assert invoke("bench", "matmul", "--dtype", "bf16,f16").exit_code == 2


def test_bench_measures_and_writes_files(
    invoke: Any, kernels: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """On a machine the harness's cases become a table, a JSON file and a Markdown file."""
    from tilekit.bench import matmul
    from tilekit.bench.matmul import Case, Result

    seen: dict[str, Any] = {}

    def measured(workloads: Any, entrants: Any, machine: Any, **rest: Any) -> Any:
        seen.update(workloads=workloads, names=[entrant.name for entrant in entrants], **rest)
        ours = Result("tilekit", error=0.001, us=10.0, burst_us=9.0, tflops=1.0)
        return [Case("64x64x64", "bf16→bf16 k/k", 1, 1, 2, 0.1, [ours])]

    fake = SimpleNamespace(library="torch 2", device="Paper", capability=(9, 0), uuid="GPU-0", matmul=None, fused=None)
    monkeypatch.setattr(machines, "require_machine", lambda: fake)
    monkeypatch.setattr(matmul, "run", measured)
    files = ("--json-file", tmp_path / "b.json", "--markdown-file", tmp_path / "b.md")
    result = invoke("bench", "matmul", "--shape", "64x64x64", "--shape", "2x8x8x8", "--seconds", 5, *files)
    assert result.exit_code == 0, result.output
    assert [workload.label for workload in seen["workloads"]] == ["64x64x64", "2x8x8x8"]
    assert (seen["names"], seen["seconds"]) == (["tilekit", "cuBLAS (torch)"], 5.0)
    assert "| 64x64x64 |" in result.stdout
    assert (tmp_path / "b.md").read_text() in result.stdout
    assert json.loads((tmp_path / "b.json").read_text())["cases"][0]["label"] == "64x64x64"


GPU = driver.DeviceInfo(0, "Paper H200", (9, 0), 132, 140 << 30, 60 << 20, (13, 0))


def test_doctor_says_what_the_assembler_builds_for(invoke: Any) -> None:
    """The assembler of the test environment takes the kernels of every target whose instruction set is PTX."""
    targets = json.loads(invoke("doctor", "--json").stdout)["assemblers"]["ptxas targets"]
    assert targets == ", ".join(chip.name for chip in TARGETS.values() if chip.isa == "ptx")


def test_doctor_reports_the_amd_side(invoke: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """AMD's GPUs, with chip and features, and an assembler that builds for both chips."""
    gpus = [
        hip.HipDevice(0, "Paper MI300X", "gfx942", "sramecc+:xnack-", 304, 192 << 30, 65536),
        hip.HipDevice(1, "Paper MI210", "gfx90a", "", 104, 64 << 30, 65536),
    ]
    monkeypatch.setattr(hip, "devices", lambda: tuple(gpus))
    section = json.loads(invoke("doctor", "--json").stdout)["amd"]
    assert section["hip:0"] == "Paper MI300X, gfx942:sramecc+:xnack-, 304 CUs, 192 GiB"
    assert section["hip:1"] == ("Paper MI210, gfx90a (no chip of tilekit's: those are gfx942, gfx950), 104 CUs, 64 GiB")
    assert section["assembler"].startswith("ziglang (LLVM ")
    assert section["assembler targets"] == "gfx942, gfx950"


def test_doctor_without_rocm_or_an_assembler_for_it(invoke: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing on AMD's side is said there; it stands in the way of nothing, so the exit code stays."""

    def none(*_: Any) -> Any:
        raise HipError("no ROCm runtime on this machine", code="TK-HIP-003")

    monkeypatch.setattr(hip, "devices", none)
    monkeypatch.setattr(amd_toolchain, "_wheel", lambda: iter(()))
    monkeypatch.setattr(amd_toolchain, "_rocm_folders", lambda: iter(()))
    report = json.loads(invoke("doctor", "--json").stdout)
    assert report["amd"]["none"] == "no ROCm runtime on this machine"
    assert "pip install ziglang" in report["amd"]["assembler"]
    assert not any("ROCm" in problem for problem in report["problems"])


def test_doctor_without_a_gpu_is_content(invoke: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Without a driver the emulator is the verdict, exit code 0, and every section is there."""
    monkeypatch.setenv("TILEKIT_CACHE_DIR", str(tmp_path))

    def none() -> Any:
        raise DriverError("no NVIDIA driver here", code="TK-DRV-003")

    monkeypatch.setattr(driver, "devices", none)
    monkeypatch.setattr("tilekit.cli.doctor._has_nvidia_driver", lambda: False)
    result = invoke("doctor")
    assert result.exit_code == 0, result.output
    for words in (
        "tilekit:",
        "gpus:",
        "assemblers:",
        "cache:",
        "packages:",
        "settings:",
        "verdict: kernels run on the",
    ):
        assert words in result.stdout
    assert "no NVIDIA driver here" in result.stdout
    assert f"{tmp_path} (environment; TILEKIT_CACHE_DIR)" in result.stdout


def test_doctor_with_a_gpu_and_everything_else(invoke: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """A supported GPU, an assembler that builds for it, and a library for arrays: the verdict is the GPU."""
    monkeypatch.setenv("TILEKIT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(driver, "devices", lambda: (GPU,))
    monkeypatch.setattr("tilekit.cli.doctor._no_library", lambda: None)
    result = invoke("doctor")
    assert result.exit_code == 0, result.output
    assert "Paper H200, compute capability 9.0 (runs sm_90a), 132 SMs, 140 GiB, driver for CUDA 13.0" in result.stdout
    assert "ptxas targets" in result.stdout
    assert "verdict: kernels run on the GPU" in result.stdout


def test_doctor_with_a_gpu_and_no_assembler_exits_with_3(invoke: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing to use the GPU is a line of its own with the command that installs it."""

    def none() -> Any:
        raise AssemblerNotFound("no ptxas; pip install nvidia-cuda-nvcc")

    monkeypatch.setattr(driver, "devices", lambda: (GPU,))
    monkeypatch.setattr(toolchain, "find_ptxas", none)
    monkeypatch.setattr("tilekit.cli.doctor._no_library", lambda: "no library for arrays on the GPU")
    result = invoke("doctor", "--json")
    assert result.exit_code == 3
    assert json.loads(result.stdout)["problems"] == [
        "no ptxas; pip install nvidia-cuda-nvcc",
        "no library for arrays on the GPU",
    ]


def test_doctor_with_a_driver_that_python_cannot_reach(invoke: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nvidia-smi is there and cuda-bindings is not, a GPU goes unused: exit code 3, with what to install."""

    def none() -> Any:
        raise DriverError("CUDA needs the package cuda-bindings; pip install 'tilekit-gpu[cuda]'", code="TK-DRV-002")

    monkeypatch.setattr(driver, "devices", none)
    monkeypatch.setattr("tilekit.cli.doctor._has_nvidia_driver", lambda: True)
    result = invoke("doctor")
    assert result.exit_code == 3
    assert "pip install 'tilekit-gpu[cuda]'" in result.stdout
    assert "verdict: kernels run on the emulator" in result.stdout


def test_doctor_with_a_gpu_of_another_generation(invoke: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU that no kernel is built for is said to be none of the targets, and the emulator runs."""
    old = driver.DeviceInfo(0, "Paper T4", (7, 5), 40, 40 << 30, 40 << 20, (13, 0))
    monkeypatch.setattr(driver, "devices", lambda: (old,))
    result = invoke("doctor")
    assert result.exit_code == 0
    assert "(not a target of tilekit)" in result.stdout
    names = "sm_80 (8.0), sm_86 (8.6), sm_89 (8.9), sm_90a (9.0), sm_100a (10.0), sm_120a (12.0)"
    assert f"no GPU here is one of tilekit's targets: {names}" in result.stdout


def test_doctor_knows_blackwell(invoke: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A B200 is said to run sm_100a."""
    b200 = driver.DeviceInfo(0, "Paper B200", (10, 0), 148, 180 << 30, 126 << 20, (13, 0))
    monkeypatch.setattr(driver, "devices", lambda: (b200,))
    result = invoke("doctor")
    assert "Paper B200, compute capability 10.0 (runs sm_100a), 148 SMs" in result.stdout


@pytest.mark.parametrize("command", ["run", "dump", "bench", "doctor", "list"])
def test_every_command_teaches(invoke: Any, command: str) -> None:
    """Each --help has a description and a line for every option."""
    result = invoke(command, "--help")
    assert result.exit_code == 0
    assert "--json" in result.stdout
    assert len(result.stdout) > 300


def test_the_front_door_names_commands_and_exit_codes(invoke: Any) -> None:
    """`tilekit --help` lists the commands, an example, and what exit codes mean; --version prints the version."""
    shown = invoke("--help").stdout
    for words in ("run", "dump", "bench", "doctor", "list", "tilekit run matmul", "Exit codes: 0"):
        assert words in shown
    assert invoke("--version").stdout.strip() == f"tilekit {tilekit.__version__}"


def test_help_loads_nothing_heavy() -> None:
    """`tilekit --help` is quick because NumPy, the emulator and the array libraries are imported by commands alone."""
    program = (
        "import sys; sys.argv = ['tilekit', '--help']\n"
        "from tilekit.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'numpy', 'ml_dtypes', 'torch', 'cupy', 'tilekit.emulator', 'tilekit.kernels', 'cuda.bindings'}\n"
        "print('LOADED', sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert "LOADED []" in done.stdout


def test_every_family_is_listed(invoke: Any) -> None:
    """The list is the registry: names in the order in which families are asked, with their targets."""
    rows = json.loads(invoke("list", "--json").stdout)
    assert [(row["name"], row["summary"], tuple(row["targets"])) for row in rows] == [
        (family.name, family.summary, family.targets) for family in families().values()
    ]


SHOWN = (MatmulArguments, ConvArguments, BlockwiseArguments)


@pytest.mark.parametrize("family", [family.name for family in families().values() if family.arguments in SHOWN])
def test_a_family_is_shown_and_run_by_name(invoke: Any, family: str) -> None:
    """Without options a call that the family takes: its kernel is explained, and computes it."""
    shown = json.loads(invoke("dump", family, "--json").stdout)
    assert shown["name"].startswith(family)
    shape = ("--h", 6) if family == "conv2d" else ("--n", 64, "--k", 64)
    ran = json.loads(invoke("run", family, *shape, "--json").stdout)
    assert (ran["right"], ran["name"].startswith(family)) == (True, True)


def test_a_product_that_the_family_declines(invoke: Any) -> None:
    """The reason is said, and which family to ask."""
    for options, reason in ((("--m", 9), "1 to 8 rows"), (("--target", "sm_100a"), "built for sm_90a")):
        for command in ("run", "dump"):
            result = invoke(command, "gemv", *options)
            assert result.exit_code == 2
            assert "nearest legal: 'matmul'" in result.output
            assert reason in result.output
    assert "8x64x64" in invoke("run", "gemv", "--n", 64, "--k", 64).output
    result = invoke("bench", "gemv", "--shape", "9x64x64")
    assert (result.exit_code, "1 to 8 rows" in result.output) == (2, True)
