"""``tilekit emulate`` and ``tilekit lint``: arguments in words, results, and one message for whatever is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from product_kernels import DOUBLE, HANG, RACE, TICKETS
from rich.console import Console
from typer.testing import CliRunner, Result

from tilekit.cli.app import app
from tilekit.cli.emulate_arguments import arguments_of
from tilekit.cli.progress import progress_bar
from tilekit.emulator import Buffer, Device, EncodedTensorMap
from tilekit.errors import ArgumentError

ROOT = Path(__file__).parents[4]
EXAMPLE = ROOT / "examples" / "double.ptx"
SHAPE = ("--block", "64", "--shared", "288")
ARGS = ("--arg", "f32[192]=range", "--arg", "f32[192]=nan", "--arg", "u32:6")
Run = Callable[..., Result]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in this process; it must never end in a traceback."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")

    def invoke(*arguments: object) -> Result:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    return invoke


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], Path]:
    """A text as a file."""

    def write(text: str) -> Path:
        path = tmp_path / "kernel.ptx"
        path.write_text(text)
        return path

    return write


# -- arguments -------------------------------------------------------------------------------------------------------


def test_buffers_in_words(tmp_path: Path):
    """Types, shapes and fills make the arrays they say."""
    np.save(tmp_path / "x.npy", np.arange(6, dtype=np.float64).reshape(2, 3))
    words = [
        "bf16[2,3]=range",
        "i8[4]=ones",
        "f32[3]=nan",
        "u16[2]=7",
        f"@{tmp_path}/x.npy",
        f"f16[2,3]=@{tmp_path}/x.npy",
    ]
    arrays = [buffer.read() for buffer in arguments_of(Device(), words)]
    assert [(a.dtype, a.shape) for a in arrays] == [
        (np.dtype(ml_dtypes.bfloat16), (2, 3)), (np.dtype("i1"), (4,)), (np.dtype("f4"), (3,)), (np.dtype("u2"), (2,)),
        (np.dtype("f8"), (2, 3)), (np.dtype("f2"), (2, 3)),
    ]  # fmt: skip
    assert arrays[0].astype(int).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert arrays[1].tolist() == [1] * 4
    assert np.isnan(arrays[2]).all()
    assert arrays[3].tolist() == [7, 7]
    assert arrays[5].tolist() == arrays[4].tolist()


def test_random_numbers_come_again():
    """The same seed gives the same numbers, another one others; integers are small."""
    words = ["f32[64]=random", "f32[64]=random:0", "f32[64]=random:1", "s32[64]=random:1"]
    plain, zero, one, whole = (buffer.read() for buffer in arguments_of(Device(), words))
    assert (plain == zero).all()
    assert (plain != one).any()
    assert -8 <= whole.min() < 0 < whole.max() < 8


def test_scalars_and_maps():
    """Numbers have exactly the type they say; a map refers to a buffer before it."""
    number, real, nothing, buffer, tensor = arguments_of(
        Device(), ["i64:-7", "f32:0.5", "null", "bf16[64,128]=zeros", "map:3,box=64x32,swizzle=128B"]
    )
    assert (number, number.dtype, real, real.dtype, nothing) == (-7, np.int64, 0.5, np.float32, None)
    assert isinstance(buffer, Buffer)
    assert isinstance(tensor, EncodedTensorMap)
    assert (tensor.map.dims, tensor.map.box) == ((128, 64), (64, 32))


def test_buffers_that_may_only_be_read():
    """Words with const: before them are buffers like others, but that no kernel may write."""
    one, other = arguments_of(Device(), ["const:f32[4]=range", "f32[4]=range"])
    assert one.read().tolist() == other.read().tolist()
    assert (one.writable, other.writable) == (False, True)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("const:f32:1", "const: before these"),
        ("fp32[4]=ones", "nearest legal: 'f32[4]=ones'"),
        ("f32[4]=once", "nearest legal: 'f32[4]=ones'"),
        ("u32=6", "nearest legal: 'u32:6'"),
        ("f32[4", "TYPE[SHAPE]="),
        ("u8:256", "nearest legal: 255"),
        ("u8:x", "a number behind 'u8:'"),
        ("f32[4]=random:x", "a seed of 18 digits at most"),
        ("map:0,box=4x4", "the number of a buffer before it"),
        ("f32[99999999999]=ones", "at most 4294967296 bytes"),
        ("@nowhere.npy", "cannot be read"),
    ],
)
def test_bad_words(word: str, message: str):
    """Each mistake in an argument is named, with what is legal."""
    with pytest.raises(ArgumentError, match="--arg") as caught:
        arguments_of(Device(), [word])
    assert message in str(caught.value)


def test_bad_maps():
    """A map's box, option and encoding are checked."""
    for word, message in (
        ("map:0", "box=AxB"),
        ("map:0,box=64x64,swizle=128B", "nearest legal: 'swizzle'"),
        ("map:0,box=64x512", "box"),
    ):
        with pytest.raises(ArgumentError, match="--arg") as caught:
            arguments_of(Device(), ["bf16[64,64]=zeros", word])
        assert message in str(caught.value)


# -- emulate ---------------------------------------------------------------------------------------------------------


def test_a_clean_run(run: Run, tmp_path: Path):
    """Output is printed and saved, statistics are counted, a timeline is written; exit 0."""
    result = run("emulate", EXAMPLE, *SHAPE, *ARGS, "--print", 1, "--save", f"1={tmp_path}/out.npy", "--statistics",
                 "--timeline", tmp_path / "trace.json", "--seed", 4, "--schedule", "random")  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "schedule random, seed 4" in result.stdout
    assert "all 54 instructions of the text ran" in result.stdout
    assert "380. 382.]" in result.stdout
    assert (np.load(tmp_path / "out.npy") == 2 * np.arange(192)).all()
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]


def test_json(run: Run):
    """One object with the report, the statistics and what was to be printed."""
    result = run("emulate", EXAMPLE, *SHAPE, *ARGS, "--print", 1, "--statistics", "--json")
    facts = json.loads(result.stdout)
    assert (facts["clean"], facts["steps"], facts["bytes_loaded"]) == (True, 226, 768)
    assert facts["printed"]["1"][:3] == [0.0, 2.0, 4.0]
    assert facts["statistics"]["lines"] == 54


def test_bf16_is_saved_as_float32(run: Run, written: Any, tmp_path: Path):
    """Types that NumPy lacks are saved in one that it has."""
    result = run("emulate", written(TICKETS), "--block", 32, "--arg", "u32[1]=zeros", "--arg", "bf16[4]=zeros",
                 "--save", f"1={tmp_path}/out.npy")  # fmt: skip
    assert result.exit_code == 0, result.output
    assert np.load(tmp_path / "out.npy").dtype == np.float32


@pytest.mark.parametrize(("text", "kind"), [(RACE, "RaceError"), (HANG, "Deadlock")])
def test_faults(run: Run, written: Any, text: str, kind: str):
    """A fault is printed whole, as text or JSON; exit 1."""
    result = run("emulate", written(text), *SHAPE, *ARGS)
    assert (result.exit_code, f"error [{kind}]" in result.stderr, "hint:" in result.stderr) == (1, True, True)
    facts = json.loads(run("emulate", written(text), *SHAPE, *ARGS, "--json").stdout)
    assert (facts["code"], facts["exit"]) == (kind, 1)
    assert "hint:" in facts["report"]


def test_explore(run: Run, written: Any):
    """Many orders: a clean summary, or the first bad one with seed and schedule."""
    clean = run("emulate", EXAMPLE, *SHAPE, *ARGS, "--explore", 5)
    assert (clean.exit_code, "5 launches" in clean.stdout) == (0, True)
    bad = run("emulate", written(RACE), *SHAPE, *ARGS, "--explore", 5, "--json")
    facts = json.loads(bad.stdout)
    assert (bad.exit_code, facts["clean"]) == (1, False)
    assert {"seed", "schedule", "message"} == facts["failure"].keys()


def test_stop(run: Run):
    """A stop prints where the launch stands and what is there; a place that is not reached ends well."""
    result = run("emulate", EXAMPLE, *SHAPE, *ARGS, "--stop", "wait=full[0]")
    assert result.exit_code == 0, result.output
    for shown in (
        "waits for full[0] phase 0",
        "full[0]: phase 0, 0 of 1 arrivals pending, tx 128",
        "in flight",
        "registers",
    ):
        assert shown in result.stdout
    facts = json.loads(run("emulate", EXAMPLE, *SHAPE, *ARGS, "--stop", 55, "--json").stdout)
    assert (facts["line"], facts["where"]["role"], facts["registers"]["chunk"][0]) == (55, "copy", 0)
    never = run("emulate", EXAMPLE, *SHAPE, *ARGS, "--stop", "wait=bar 7")
    assert (never.exit_code, "without coming there" in never.stdout) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--block", "64,"), "--block"),
        (("--block", 4096), "at most 1024 threads"),
        (("--shared", 10**6), "shared_bytes=1000000"),
        (("--grid", "0"), "grid"),
        (("--grid", "1,99999"), "y and z at most 65535"),
        (("--grid", "1,2,3,4"), "nearest legal: '1,2,3'"),
        (("--cluster", 16), "cluster"),
        (("--entry", "duble"), "the module has no kernel 'duble'"),
        (("--arg", "i32:1"), "4 arguments for the 3 parameters"),
        (("--target", "sm_95"), "--target: given 'sm_95'"),
        (("--schedule", "fare"), "schedule='fare'"),
        (("--check", "ful"), "use check='full'"),
        (("--stop", "nowher"), "label='nowher'"),
        (("--print", 2), "--print"),
        (("--save", "x"), "--save"),
        (("--save", "1=/no/such/folder/x.npy"), "cannot be written"),
        (("--explore", 3, "--statistics"), "--explore goes without --statistics"),
        (("--explore", -1), "tries=-1"),
    ],
)
def test_bad_usage(run: Run, arguments: tuple[object, ...], message: str):
    """Whatever does not fit is refused before anything runs, in one message; exit 2."""
    result = run("emulate", EXAMPLE, *SHAPE, *ARGS, *arguments)
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) <= 3


def test_wrong_argument_type(run: Run):
    """A 4-byte number for a pointer is refused, naming the parameter."""
    result = run("emulate", EXAMPLE, *SHAPE, "--arg", "i32:1", "--arg", "null", "--arg", "u32:6")
    assert result.exit_code == 2
    assert "args[0] (in_param)" in result.stderr


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("# no PTX", 1, "unexpected character"),
        (DOUBLE.replace("ld.param.u64 in,", "ld.param.u64 in"), 1, "line 21"),
        (DOUBLE.replace("bar.sync 0", "bar.synch 0"), 1, "the nearest form known is 'bar"),
        (".version 8.0\n.target sm_90a\n.address_size 64\n", 2, "a file with a kernel (.entry in PTX"),
    ],
)
def test_bad_texts(run: Run, written: Any, text: str, code: int, message: str):
    """A text that is not PTX, or not all of it, gets one message with its place."""
    result = run("emulate", written(text), *SHAPE, *ARGS)
    assert result.exit_code == code, result.output
    assert message in result.stderr


def test_missing_file(run: Run):
    """A file that is not there is named, and the nearest that is."""
    result = run("emulate", EXAMPLE.with_name("dubble.ptx"))
    assert (result.exit_code, "double.ptx" in result.stderr) == (2, True)


# -- lint ------------------------------------------------------------------------------------------------------------


def test_lint(run: Run, written: Any):
    """Clean texts exit with 0, others with 1 and a remark a line, or JSON."""
    assert run("lint", EXAMPLE).exit_code == 0
    path = written(DOUBLE.replace("bar.sync 0", "bar.synch 0"))
    result = run("lint", path)
    assert result.exit_code == 1
    assert f"{path}:36: unsupported: " in result.stdout
    facts = json.loads(run("lint", path, "--json").stdout)
    assert [remark["line"] for remark in facts["remarks"]] == [36]
    assert run("lint", EXAMPLE, "--target", "sm_99").exit_code == 2


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("as_json", [True, False])
def test_a_bar_is_shown_on_terminals_only(monkeypatch: pytest.MonkeyPatch, terminal: bool, as_json: bool):
    """Progress is drawn where a person looks on, and never beside JSON."""
    monkeypatch.setattr(Console, "is_terminal", terminal)
    with progress_bar("orders", as_json) as advance:
        assert (advance is not None) == (terminal and not as_json)
