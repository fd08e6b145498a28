"""Kernels of a file on the command line, and their check from Python."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import tilekit.compose as tk
from tilekit.cli.app import app
from tilekit.errors import TilekitError

ROOT = Path(__file__).resolve().parents[2]
MINE = f"{ROOT / 'examples' / 'gated_row_sums.py'}:gated_matmul"


def invoke(*arguments: str) -> tuple[int, str]:
    """Run the command line; return its exit code and what it said."""
    result = CliRunner().invoke(app, arguments)
    return result.exit_code, result.output + (result.stderr if result.stderr_bytes else "")


def test_run_is_a_check_under_three_interleavings() -> None:
    """`tilekit run mine.py:kernel` says what it ran and found."""
    code, text = invoke("run", MINE, "--m", "136", "--n", "72", "--json")
    facts = json.loads(text)
    assert code == 0
    assert facts["clean"]
    assert facts["extents"] == "k=64, m=136, n=72"


@pytest.mark.parametrize("command", ["run", "emulate"])
def test_extents_of_any_letter(command: str) -> None:
    """`--extent` says those that have no option of their own; of other letters, lists and kernels it is refused."""
    made = runpy.run_path(MINE.rpartition(":")[0])["gated_matmul"]
    letter = next(letter for one in made.operands for letter in one.shape)
    code, text = invoke(command, MINE, "--extent", f"{letter}=72", *(("--json",) if command == "run" else ()))
    assert code == 0, text
    assert command == "emulate" or f"{letter}=72" in json.loads(text)["extents"]
    for given, words in (("v=9", "--extent v="), ("v", "nearest legal: 'v=50,j=8'"), ("m=1,", "a letter and a number")):
        code, text = invoke(command, MINE, "--extent", given)
        assert (code, words in " ".join(text.split())) == (2, True), text
    code, text = invoke("run", "matmul", "--extent", "v=3")
    assert (code, "of a kernel of yours" in " ".join(text.split())) == (2, True), text


@pytest.mark.parametrize("what", ["explain", "ptx"])
def test_dump_shows_it(what: str) -> None:
    """`tilekit dump mine.py:kernel` shows what it shows of shipped kernels."""
    code, text = invoke("dump", MINE, "--what", what)
    assert code == 0
    assert "gated_matmul" in text


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        ("x = 1\n", "kernel", "it has no kernel"),
        ("kernel = 3\n", "kernel", "there is 3, no kernel"),
        ("x = 1\ny = x +\n", "kernel", "mine.py:2: SyntaxError"),
        ("x = 1\n\n1 / 0\n", "kernel", "mine.py:3: ZeroDivisionError"),
    ],
)
def test_files_without_the_kernel(tmp_path: Path, text: str, name: str, words: str) -> None:
    """A file that has it not, or that fails: a code, and the line."""
    from tilekit.cli.own_kernel import load

    file = tmp_path / "mine.py"
    file.write_text(text)
    with pytest.raises(TilekitError) as caught:
        load(f"{file}:{name}")
    assert caught.value.code == "TK-CLI-013"
    assert words in str(caught.value)
    assert invoke("run", f"{file}:{name}")[0] != 0


def test_a_file_finds_the_modules_beside_it(tmp_path: Path) -> None:
    """As where Python runs it: its folder comes first, while it is loaded."""
    (tmp_path / "beside_mine.py").write_text(Path(MINE.rpartition(":")[0]).read_text())
    (tmp_path / "mine.py").write_text("from beside_mine import gated_matmul as kernel\n")
    before = [*sys.path]
    try:
        code, text = invoke("dump", f"{tmp_path / 'mine.py'}:kernel")
    finally:
        sys.modules.pop("beside_mine", None)
    assert (code, "gated_matmul" in text) == (0, True), text
    assert sys.path == before


def test_names_are_near() -> None:
    """The nearest kernel of the file is named; a file alone and a file that is not there are errors too."""
    from tilekit.cli.own_kernel import load

    for kernel in (MINE[:-1], MINE.rpartition(":")[0], "nowhere.py:kernel"):
        with pytest.raises(TilekitError) as caught:
            load(kernel)
        assert caught.value.code == "TK-CLI-013"
    with pytest.raises(TilekitError, match="gated_matmul"):
        load(MINE[:-1])
    for kernel in (MINE.rpartition(":")[0], MINE.rpartition(":")[0] + ":"):
        with pytest.raises(
            TilekitError, match=r"legal is FILE\.py:NAME, and no name is given; kernels in .*gated_matmul"
        ):
            load(kernel)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("run", MINE.replace("row_sums.py", "row_sum.py")), "TK-CLI-013", "there is no file"),
        (("run", MINE.replace("row_sums.py", "row_sum.py")), "TK-CLI-013", f"nearest: {MINE}"),
        (("lint", MINE), "TK-CLI-013", f"Nearest: tilekit run {MINE}"),
        (("lint", MINE.rpartition(":")[0]), "TK-CLI-013", "it is Python"),
        (("tune", MINE, "--shape", "64x64x64"), "TK-CLI-013", "Nearest: tilekit bench"),
        (("run", "README.md:kernel"), "TK-CLI-001", "or a kernel of yours, FILE.py:NAME"),
        (("run", MINE.replace(".py:", ":")), "TK-CLI-001", f"nearest legal: '{MINE}'"),
        (("run", MINE, "--extent", "m=0"), "TK-COMP-003", "m: given 0; legal: an extent from 1 on"),
        (("run", MINE, "--extent", "m=0"), "TK-COMP-003", "nearest legal: 1"),
        (("run", "grouped"), "TK-CLI-001", "nearest legal: 'grouped_matmul'"),
        (("emulate", MINE, "--explore", "-1"), "", "tries=-1"),
    ],
)
def test_commands_that_do_not_fit(arguments: tuple[str, ...], code: str, words: str) -> None:
    """Each is answered in the command line's words, with what does it instead."""
    exit_code, text = invoke(*arguments)
    assert exit_code == 2
    said = " ".join(text.split())
    assert code in said
    assert words.replace(" ", "") in said.replace(" ", "")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    """A folder with the name of a file is said to be one, and is not what is nearest to itself."""
    from tilekit.cli.own_kernel import load

    (tmp_path / "mine.py").mkdir()
    with pytest.raises(TilekitError, match=r"mine\.py is a folder \[TK-CLI-013\]"):
        load(f"{tmp_path / 'mine.py'}:kernel")


def test_a_file_that_leaves(tmp_path: Path) -> None:
    """A file that calls exit says so, with its line; the command does not end in silence with the file's code."""
    from tilekit.cli.own_kernel import load

    file = tmp_path / "mine.py"
    file.write_text("x = 1\nraise SystemExit(5)\n")
    with pytest.raises(TilekitError, match=r"mine.py:2: SystemExit: 5.*TK-CLI-013"):
        load(f"{file}:kernel")


OWN_MISTAKES = """import tilekit.compose as tk

@tk.kernel(tk.Input("x", tk.F32, "n"), tk.Output("y", tk.F32, "n"), target="sm_90a", threads=64)
def first(w):
    return undefined

class One:
    def schedule(self, call):
        return tk.Schedule(clusters=call.kk, tiles=1)

@tk.kernel(tk.Input("x", tk.F32, "n"), tk.Output("y", tk.F32, "n"), target="sm_90a", threads=64)
def second(w):
    return One()
"""


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (":first", "mine.py:5: NameError: name 'undefined' is not defined"),
        (":second", "mine.py:9: AttributeError: 'LetteredCall' object has no attribute 'kk'"),
        (":fist", "it has no fist; kernels in"),
        ("", "legal is FILE.py:NAME, and no name is given; kernels in"),
        (":", "legal is FILE.py:NAME, and no name is given; kernels in"),
    ],
)
def test_what_goes_wrong_in_a_file_is_the_files(tmp_path: Path, name: str, words: str) -> None:
    """An exception of the caller's own lines is told with file and line, and as no defect of tilekit's."""
    file = tmp_path / "mine.py"
    file.write_text(OWN_MISTAKES)
    code, text = invoke("run", f"{file}{name}")
    assert code == 2
    said = "".join(text.split())
    assert "TK-CLI-013" in said
    assert words.replace(" ", "") in said


def test_check_from_python() -> None:
    """`check` reports each run; a letter that no operand has is refused; results that depend on the order are."""
    kernel: tk.ComposedKernel = runpy.run_path(MINE.rpartition(":")[0])["gated_matmul"]
    reports = kernel.check(m=72, n=136)
    assert len(reports) == 3
    assert repr(reports) == "<3 interleavings with the same results; nothing found>"
    assert all(report.clean for report in reports)
    with pytest.raises(TilekitError) as caught:
        kernel.check(q=3)
    assert caught.value.code == "TK-COMP-003"
    assert kernel.example(m=3, k=5)["a"].shape == (3, 5)


class _TwoClusters:
    def schedule(self, call: tk.Call) -> tk.Schedule:
        """Two CTAs, whichever is first."""
        return tk.Schedule(clusters=8, tiles=8)


def test_check_finds_what_depends_on_the_order() -> None:
    """CTAs number themselves as they come: another interleaving gives other numbers."""

    @tk.kernel(tk.Input("x", tk.F32, "n"), tk.Output("y", tk.F32, "n"), target="sm_90a", threads=32)
    def numbered(w: tk.Writer) -> _TwoClusters:
        y = w.parameter("y", tk.registers.GMEM, lambda call: call.address("y"))
        counter = w.parameter("counter", tk.registers.GMEM, lambda call: call.allocate("counter", 4))
        before = w.variable(tk.registers.U32, 0, "before")
        with w.when(w.thread() == 0):
            before.assign(w.isa.memory.count_gpu(address=counter, value=1))
            number = w.isa.convert.float_u32(whole=before)
            place = w.cta()
            address = (y + w.widen_multiply(place, 4)).retyped(tk.registers.GMEM)
            w.isa.memory.store_global_f32(address=address, value=number, valid=place < 8)
        return _TwoClusters()

    with pytest.raises(TilekitError) as caught:
        numbered.check(seeds=range(20), n=8)
    assert caught.value.code == "TK-COMP-006"


UNKNOWN = """
from pathlib import Path

import tilekit.compose as tk


class One:
    def schedule(self, call):
        return tk.Schedule(clusters=1, tiles=1)


@tk.kernel(tk.Input("x", tk.F32, "n"), tk.Output("y", tk.F32, "n"), target="sm_90a", threads=32)
def halved(w):
    own = w.fragments(Path(__file__).parent / "half.ptx")
    y = w.parameter("y", tk.registers.GMEM, lambda call: call.address("y"))
    half = own.half(x=1.0)
    w.isa.memory.store_global_f32(address=y, value=half, valid=w.thread() < 1)
    return One()
"""
HALF = """\
//! fragment  half
//! about     half of `x`.
//! in        x     f32
//! out       half  f32
//! kind      scalar
//! target    sm_80  ptx 7.0
    mxl.f32 ${half}, ${x}, 0f3F000000;
"""


def test_an_unknown_opcode_names_its_fragment(tmp_path: Path) -> None:
    """A fragment's wrong mnemonic is answered with its line, and opcodes like it."""
    (tmp_path / "mine.py").write_text(UNKNOWN)
    (tmp_path / "half.ptx").write_text(HALF)
    code, text = invoke("run", f"{tmp_path / 'mine.py'}:halved", "--n", "8")
    assert code != 0
    assert "TK-FRAG-001" in text
    assert "half.ptx:7: fragment half: opcode 'mxl' is not known" in text
    assert "mul" in text


@pytest.mark.parametrize("named", [MINE, f"{ROOT / 'tests' / 'cli' / 'amd_product.py'}:product"])
def test_trace_and_emulate(named: str, tmp_path: Path) -> None:
    """The other commands take it too: a trace of all roles, a watched launch, other orders, a stop."""
    out = tmp_path / "trace.json"
    code, text = invoke("trace", named, "--m", "200", "--n", "72", "--k", "96", "--out", str(out), "--json")
    facts = json.loads(text)
    assert code == 0
    assert facts["unit"] == "steps"
    assert facts["extents"] == "k=96, m=200, n=72"
    names = {event["args"].get("name") for event in json.loads(out.read_text())["traceEvents"]}
    assert {"load", "mma", "epilogue"} <= names
    code, text = invoke("emulate", named, "--m", "72", "--statistics", "--timeline", str(out), "--json")
    assert code == 0
    assert json.loads(text)["statistics"]
    assert json.loads(out.read_text())["traceEvents"]
    code, text = invoke("emulate", named, "--explore", "3", "--json")
    assert code == 0
    assert json.loads(text)["different"] == []
    code, text = invoke("emulate", named, "--stop", "role=mma", "--json")
    assert code == 0
    assert json.loads(text)["where"]["role"] == "mma"


@pytest.mark.parametrize(
    ("words", "code", "named"),
    [
        (["run", MINE, "--dtype", "f16"], "TK-CLI-013", "--dtype"),
        (["run", MINE, "--device", "cuda"], "TK-CLI-013", "--device"),
        (["run", MINE, "--bias"], "TK-CLI-013", "--bias"),
        (["run", MINE, "--target", "gfx950"], "TK-CLI-013", "--target"),
        (["run", MINE, "--m", "0"], "TK-COMP-003", "m"),
        (["dump", MINE, "--what", "ranking"], "TK-CLI-005", "--what"),
        (["dump", MINE, "--tile", "64x64"], "TK-CLI-013", "--tile"),
        (["trace", MINE, "--stages", "2"], "TK-CLI-013", "--stages"),
        (["trace", MINE, "--tiles", "65536", "--out", "/"], "TK-CLI-006", "--out"),
        (["trace", f"{ROOT / 'examples' / 'compose_matmul.py'}:composed_matmul"], "TK-COMP-007", "notes no times"),
        (["emulate", MINE, "--grid", "4"], "TK-CLI-013", "--grid"),
        (["emulate", MINE, "--arg", "null"], "TK-CLI-013", "--arg"),
        (["emulate", MINE, "--check", "some"], "TK-COMP-002", "check"),
        (["emulate", "examples/double.ptx", "--m", "4"], "TK-CLI-007", "--m"),
        (["bench", MINE, "--suite", "all"], "TK-CLI-013", "--suite"),
        (["bench", MINE, "--shape", "4x4"], "TK-CLI-002", "--shape"),
        (["bench", MINE, "--dtype", "f16"], "TK-CLI-013", "--dtype"),
    ],
)
def test_options_that_are_not_for_it(words: list[str], code: str, named: str) -> None:
    """An option that would have no effect on a kernel of one's own is refused, and names itself."""
    exit_code, text = invoke(*words)
    assert exit_code == 2, text
    assert code in text
    assert named in text


def test_bench_says_what_it_needs() -> None:
    """Without a GPU one line says so; shapes are read before."""
    from tilekit.bench.machine import find_machine

    if find_machine() is None:
        code, text = invoke("bench", MINE)
        assert code == 3
        assert "TK-BENCH-002" in text


@pytest.mark.gpu
def test_bench_and_trace_on_a_gpu(tmp_path: Path) -> None:
    """Times beside the library's product; a trace in nanoseconds."""
    code, text = invoke("bench", MINE, "--shape", "512x512x512", "--seconds", "2", "--pace", "quick", "--json")
    assert code == 0, text
    records = json.loads(text)["records"]
    assert [one["contestant"] for one in records] == ["gated_matmul", records[1]["contestant"]]
    assert all(one["us"] > 0 and one["tflops"] > 0 for one in records)
    code, text = invoke("trace", MINE, "--out", str(tmp_path / "trace.json"), "--json")
    assert code == 0, text
    assert json.loads(text)["unit"] == "ns"
