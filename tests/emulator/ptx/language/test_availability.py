"""What a text may use under its ``.version`` and ``.target``, against ptxas."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from cuda.pathfinder import find_nvidia_binary_utility

from tilekit.emulator import Device, LaunchError, PtxSyntaxError, UnsupportedInstruction
from tilekit.emulator.ptx.language.availability import dialect, target
from tilekit.emulator.ptx.language.parser import parse_module
from tilekit.emulator.ptx.lint.lint import lint

LEVELS = Path(__file__).with_name("levels.ptx").read_text()
OF_THE_LINE = re.compile(r"line (\d+); error")


def kernel(body: str, version: str, target: str) -> str:
    """A module of one kernel."""
    return (
        f".version {version}\n.target {target}\n.address_size 64\n.visible .entry k()\n{{\n"
        f"  .reg .b32 %r<8>; .reg .b16 %h<8>;\n  {body}\n  ret;\n}}\n"
    )


def refused_by_ptxas(version: str, target: str, folder: Path) -> set[int]:
    """Lines of `LEVELS` that ptxas refuses under a version and a target."""
    ptxas = find_nvidia_binary_utility("ptxas")
    if ptxas is None:
        pytest.skip("ptxas is not installed")
    source = folder / "levels.ptx"
    source.write_text(LEVELS.replace(".version 9.2", f".version {version}").replace("sm_100a", target))
    command = [ptxas, f"-arch={target}", "-o", str(folder / "levels.cubin"), str(source)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if "Unsupported .version" in result.stderr:
        pytest.skip(f"ptxas does not know PTX {version}")
    return {int(line) for line in OF_THE_LINE.findall(result.stdout + result.stderr)}


@pytest.mark.parametrize(
    ("version", "name"),
    [
        *(("9.2", name) for name in ("sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_100f", "sm_100a")),
        *(("7.1", "sm_86"), ("7.4", "sm_86"), ("7.8", "sm_89"), ("7.8", "sm_90"), ("8.0", "sm_90a"), ("8.4", "sm_90a")),
        *(("8.6", "sm_100"), ("8.6", "sm_100a"), ("8.8", "sm_100f"), ("9.0", "sm_100a")),
    ],
)
def test_levels_are_those_of_ptxas(version: str, name: str, tmp_path: Path) -> None:
    """Of one instruction for each set of rules, the same are refused as by ptxas, target by target."""
    code = parse_module(LEVELS).functions["levels"].instructions
    spoken = dialect(version, name)
    assert len(code) > 250
    refused = {i.line: f"{i.text}: {spoken.lacks(i)}" for i in code if spoken.lacks(i)}
    truth = refused_by_ptxas(version, name, tmp_path)
    texts = {i.line: i.text for i in code}
    assert {line: refused[line] for line in refused.keys() - truth} == {}
    assert {line: texts[line] for line in truth & texts.keys() - refused.keys()} == {}


@pytest.mark.parametrize(
    ("body", "version", "target", "message"),
    [
        (
            "mov.u32 %r0, %cluster_ctarank;",
            "8.0",
            "sm_80",
            "%cluster_ctarank needs sm_90 or later; the target is sm_80",
        ),
        ("setmaxnreg.inc.sync.aligned.u32 64;", "8.0", "sm_90", "needs sm_90a or sm_100f or .*; the target is sm_90"),
        ("elect.sync %r0|_, -1;", "7.8", "sm_90", "needs PTX 8.0; the .version is 7.8"),
        ("wgmma.fence.sync.aligned;", "8.6", "sm_100a", "needs sm_90a; the target is sm_100a"),
        ("add.bf16 %h0, %h1, %h2;", "7.1", "sm_86", "needs sm_90 or later; the target is sm_86"),
    ],
)
def test_load_refuses_by_name(body: str, version: str, target: str, message: str) -> None:
    """An instruction that the module's target or version does not have is refused with its line, when it is loaded."""
    with pytest.raises(UnsupportedInstruction, match=message) as caught:
        Device({"sm_90": "sm_90a"}.get(target, target)).load(kernel(body, version, target))
    assert caught.value.line == 7
    assert body.split()[0].rstrip(";") in caught.value.message


@pytest.mark.parametrize(
    ("text", "chip", "runs"),
    [
        *(("sm_80", "sm_90a", True), ("sm_50", "sm_80", True), ("sm_90", "sm_90a", True), ("sm_90a", "sm_90a", True)),
        *(("sm_90a", "sm_100a", False), ("sm_90", "sm_80", False), ("sm_90a", "sm_90", False)),
        *(("sm_100f", "sm_100a", True), ("sm_103f", "sm_100a", False), ("sm_100a", "sm_90a", False)),
    ],
)
def test_chip_runs_target(text: str, chip: str, runs: bool) -> None:
    """Generic code runs on later chips, code for a family on its later members, code for one chip on no other."""
    assert target(chip).runs(target(text)) is runs
    module = kernel("", "9.0", text)
    if runs:
        assert Device(chip).load(module).kernels == ("k",)
    else:
        with pytest.raises(LaunchError, match=f"the module is for {text}, the device is {chip}"):
            Device(chip).load(module)


@pytest.mark.parametrize(
    ("version", "target", "message"),
    [
        ("7.8", "sm_90a", r"\.version 7\.8 has no \.target sm_90a: write \.version 8\.0 or later"),
        ("8.0", "sm_9a", "'sm_9a' is no target; did you mean sm_90a"),
        ("8", "sm_90a", "'8' is no PTX version"),
    ],
)
def test_bad_directives(version: str, target: str, message: str) -> None:
    """A target that does not exist, or not yet in that version, is an error at its line."""
    with pytest.raises(PtxSyntaxError, match=message) as caught:
        Device().load(kernel("", version, target))
    assert caught.value.line == 2


def test_lint_for_another_target() -> None:
    """Lint refuses what the target asked about lacks, or the text's own target when it is asked about none."""
    text = kernel("elect.sync %r0|_, -1;\n  wgmma.fence.sync.aligned;", "8.0", "sm_90")
    found = [(remark.line, remark.message.partition(", in:")[0]) for remark in lint(text, "sm_80")]
    assert found == [
        (7, "elect.sync: needs sm_90 or later; the target is sm_80"),
        (8, "wgmma.fence.sync.aligned: needs sm_90a; the target is sm_80"),
    ]
    assert [remark for remark in lint(text, "sm_90a") if remark.rule == "unsupported"] == []
    assert [remark.message for remark in lint(text) if remark.rule == "unsupported"] == [
        "wgmma.fence.sync.aligned: needs sm_90a; the target is sm_90, in: wgmma.fence.sync.aligned;"
    ]
