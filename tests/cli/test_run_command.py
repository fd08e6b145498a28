"""``tilekit run``."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilekit.cli.run import pace
from tilekit.errors import EmulationTooLong
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig
from tilekit.kernels.matmul.sm_100a.config import BlackwellConfig
from tilekit.runtime import driver

SMALL = ("--m", 64, "--n", 48, "--k", 32)


def test_a_right_result_exits_with_0(invoke: Any, kernels: Any) -> None:
    """The table names device, config, time and error, and says that the result is correct."""
    result = invoke("run", "matmul", *SMALL)
    assert result.exit_code == 0, result.output
    for words in ("matmul 64x48x32  bf16→bf16 k/k", "emulator of sm_90a", "tile ", "FLOP/s", "relative", "correct"):
        assert words in result.stdout
    (call,) = kernels.matmul
    assert (call["a"].shape, call["b"].shape, call["a"].dtype) == ((64, 32), (32, 48), ml_dtypes.bfloat16)
    assert call["target"] == "sm_90a"


def test_signed_bytes(invoke: Callable[..., Any]) -> None:
    """int8 is multiplied into int32 unless something else is asked for, and held to the last bit."""
    result = invoke("run", "matmul", *SMALL, "--dtype", "int8")
    assert result.exit_code == 0, result.output
    assert "s8→s32" in result.output
    assert "0.00e+00 relative" in result.output
    result = invoke("run", "matmul", *SMALL, "--dtype", "uint8")
    assert result.exit_code != 0
    assert "s8 by s8" in result.output


def test_a_wrong_result_exits_with_1(invoke: Any, kernels: Any) -> None:
    """One swapped pair of columns is found, called WRONG, and is exit code 1."""
    kernels.spoil = lambda out: out[:, [1, 0, *range(2, out.shape[1])]]
    result = invoke("run", "matmul", *SMALL)
    assert result.exit_code == 1
    assert "WRONG" in result.stdout


def test_the_default_is_a_512_cube(invoke: Any, kernels: Any) -> None:
    """Without options the problem is 512x512x512 in bf16."""
    assert invoke("run", "matmul").exit_code == 0
    assert kernels.matmul[0]["a"].shape == (512, 512)


def test_every_option_reaches_the_kernel(invoke: Any, kernels: Any) -> None:
    """Batch, types, majors, bias, activation, tile and cluster arrive as given."""
    options = ("--batch", 2, "--dtype", "f16", "--out-dtype", "f32", "--a-major", "mn", "--b-major", "mn", "--bias")
    result = invoke("run", "matmul", *SMALL, *options, "--activation", "relu", "--tile", "128x64", "--cluster", "1x2")
    assert result.exit_code == 0, result.output
    (call,) = kernels.matmul
    assert (call["a"].shape, call["bias"].shape, call["activation"]) == ((2, 64, 32), (48,), "relu")
    assert call["a"].strides[-2] == call["a"].itemsize
    assert (call["out_dtype"].name, call["a"].dtype) == ("f32", np.float16)
    assert (call["config"].tile, call["config"].cluster) == ((128, 64), (1, 2))


def test_two_operand_types_and_the_default_result_of_8_bit_operands(invoke: Any, kernels: Any) -> None:
    """`e4m3,e5m2` gives A and B their own types, and the result is bf16."""
    assert invoke("run", "matmul", *SMALL, "--dtype", "e4m3,e5m2").exit_code == 0
    (call,) = kernels.matmul
    assert (call["a"].dtype, call["b"].dtype) == (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)
    assert call["out_dtype"].name == "bf16"


def test_the_seed_decides_the_data(invoke: Any, kernels: Any) -> None:
    """The same seed gives the same operands, another seed others."""
    for seed in (1, 1, 2):
        invoke("run", "matmul", *SMALL, "--seed", seed)
    first, again, other = (call["a"] for call in kernels.matmul)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_json_is_one_object(invoke: Any, kernels: Any) -> None:
    """With --json the whole of stdout is one object with the error and the verdict."""
    result = invoke("run", "matmul", *SMALL, "--json")
    facts = json.loads(result.stdout)
    assert (facts["shape"], facts["right"]) == ("64x48x32", True)
    assert 0 < facts["relative_error"] < 0.01
    assert facts["worst_element"] <= 1


def test_the_gpu_is_taken_where_there_is_one(invoke: Any, kernels: Any, gpu: Any) -> None:
    """On a GPU of the target's capability the arrays are the library's, poisoned first, and the time is device time."""
    result = invoke("run", "matmul", *SMALL)
    assert result.exit_code == 0, result.output
    assert "Paper H200 through numpy 2" in result.stdout
    assert "10.0 us a launch" in result.stdout
    assert "target" not in kernels.matmul[0]


def test_operands_on_the_gpu_keep_their_layout(invoke: Any, kernels: Any, gpu: Any) -> None:
    """A transposed B and rows padded to 16 bytes arrive on the device as they were laid out on the host."""
    assert invoke("run", "matmul", "--m", 8, "--n", 12, "--k", 20, "--a-major", "mn").exit_code == 0
    a, b = kernels.matmul[0]["a"], kernels.matmul[0]["b"]
    assert (a.shape, a.strides, b.shape, b.strides) == ((8, 20), (2, 16), (20, 12), (2, 48))


def test_an_unwritten_element_on_the_gpu_is_found(invoke: Any, kernels: Any, gpu: Any) -> None:
    """The output is NaN before the launch, so what the kernel leaves out is wrong."""

    def leave_out(out: Any) -> Any:
        out[3, 5] = np.nan
        return out

    kernels.spoil = leave_out
    assert invoke("run", "matmul", *SMALL).exit_code == 1


def test_the_emulator_can_be_asked_for(invoke: Any, kernels: Any, gpu: Any) -> None:
    """--device emulator runs there although there is a GPU."""
    result = invoke("run", "matmul", *SMALL, "--device", "emulator")
    assert "emulator of sm_90a" in result.stdout
    assert kernels.matmul[0]["target"] == "sm_90a"


@pytest.fixture
def bare_gpu(monkeypatch: pytest.MonkeyPatch, kernels: Any) -> Callable[[tuple[int, int]], None]:
    """A driver with one GPU of this compute capability, and no array library."""

    def install(capability: tuple[int, int]) -> None:
        info = driver.DeviceInfo(0, "Paper GPU", capability, 132, 1 << 36, 1 << 25, (13, 0))
        monkeypatch.setattr(driver, "why_unavailable", lambda: None)
        monkeypatch.setattr(driver, "devices", lambda: (info,))

    return install


def test_a_gpu_without_an_array_library_gets_copies(invoke: Any, kernels: Any, bare_gpu: Any) -> None:
    """Without torch and CuPy NumPy arrays are computed on the GPU all the same, and the time is said to hold copies."""
    bare_gpu((9, 0))
    result = invoke("run", "matmul", *SMALL)
    assert result.exit_code == 0, result.output
    assert kernels.matmul[0]["target"] == "cuda"
    assert "with the copies to and from the GPU" in result.stdout


def test_a_gpu_of_another_generation_is_passed_over(invoke: Any, kernels: Any, bare_gpu: Any) -> None:
    """A GPU that is none of the target's is named with its capability, and the emulator runs."""
    bare_gpu((8, 0))
    result = invoke("run", "matmul", *SMALL)
    assert result.exit_code == 0
    assert "emulator of sm_90a (Paper GPU has compute capability 8.0, not 9.0)" in result.stdout


def test_asking_for_a_gpu_that_is_not_there_exits_with_3(invoke: Any, kernels: Any) -> None:
    """--device cuda without a GPU is the environment's fault."""
    result = invoke("run", "matmul", *SMALL, "--device", "cuda")
    assert result.exit_code == 3
    assert "error [TK-CLI-004]" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("matmull",), "nearest legal: 'matmul'"),
        (("matmul", "--dtype", "bfloat"), "nearest legal: 'bf16'"),
        (("matmul", "--dtype", "f16,f16,f16"), "one type, or two"),
        (("matmul", "--dtype", "bf16,f16"), "TK-MM-001"),
        (("matmul", "--dtype", "e4m3", "--a-major", "mn"), "TK-MM-004"),
        (("matmul", "--dtype", "f32"), "TK-MM-001"),
        (("matmul", "--m", 0), "m: given 0"),
        (("matmul", "--a-major", "m"), "'k' or 'mn'"),
        (("matmul", "--activation", "tanh"), "TK-MM-005"),
        (("matmul", "--tile", "128by256"), "nearest legal: '128x256'"),
        (("matmul", "--tile", "100x100"), "TK-MM-006"),
        (("matmul", "--cluster", "9x9"), "TK-MM-006"),
        (("matmul", "--target", "sm_75"), "TK-TARGET-001"),
        (("matmul", "--cta-group", 2), "TK-CLI-009"),
        (("matmul", "--target", "sm_100a", "--schedule", "pingpong"), "TK-CLI-009"),
        (("matmul", "--target", "sm_100a", "--stream-k", 2), "TK-CLI-009"),
        (("matmul", "--stream-k", 99), "--stream-k 99: 0 to 64 ranges of a tile"),
        (("matmul", "--schedule", "ping-pong"), "'cooperative' or 'pingpong'"),
        (("matmul", "--schedule", "pingpong", "--tile", "128x256"), "nearest: --tile 64x256"),
        (("matmul", "--target", "sm_100a", "--cta-group", 3), "a matrix instruction spans 1 CTA or a pair of 2"),
        (("matmul", "--target", "sm_100a", "--tile", "256x256"), "a CTA has 64 or 128 rows"),
        (("matmul", "--target", "sm_100a", "--stages", 99), "--stages 99: 1 to "),
        (("matmul", "--device", "gpu"), "auto, cuda or emulator"),
        (
            (
                "matmul",
                "--no-such-option",
            ),
            "No such option",
        ),
        ((), "Missing argument"),
    ],
)
def test_bad_usage_exits_with_2_and_no_traceback(invoke: Any, kernels: Any, arguments: Any, words: str) -> None:
    """Each mistake is one message on stderr that says what is legal, and nothing was run."""
    result = invoke("run", *arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert "Traceback" not in result.output
    assert kernels.matmul == []


def test_errors_in_json_are_json(invoke: Any, kernels: Any) -> None:
    """With --json an error is an object with its code, and the exit code is the same."""
    result = invoke("run", "matmul", "--tile", "100x100", "--json")
    assert result.exit_code == 2
    assert json.loads(result.stdout)["code"] == "TK-MM-006"


def test_a_problem_too_large_for_the_emulator_is_bad_usage(
    invoke: Any, kernels: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The estimate and the way on are the message."""

    def refuse(*arguments: Any, **keywords: Any) -> None:
        raise EmulationTooLong("would take 900 s; set TILEKIT_EMULATOR_LIMIT", seconds=900.0, limit=120.0)

    monkeypatch.setattr("tilekit.matmul", refuse)
    result = invoke("run", "matmul", *SMALL)
    assert result.exit_code == 2
    assert "would take 900 s" in result.stderr


def test_a_bug_is_not_dressed_up(invoke: Any, kernels: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only errors that tilekit raises on purpose become messages; anything else keeps its traceback."""
    monkeypatch.setattr("tilekit.matmul", lambda *arguments, **keywords: 1 // 0)
    assert isinstance(invoke("run", "matmul", *SMALL).exception, ZeroDivisionError)


def test_a_tile_of_ones_own_gets_warpgroups_that_fit(invoke: Any, kernels: Any) -> None:
    """A tile that is among the candidates brings its warpgroups; another gets one or two by its rows."""
    for tile in ("192x128", "64x192", "256x64"):
        assert invoke("run", "matmul", *SMALL, "--tile", tile).exit_code == 0
    known, narrow, wide = (call["config"] for call in kernels.matmul)
    assert (known.tile, known.consumers) == ((192, 128), 3)
    assert (narrow.tile, narrow.consumers) == ((64, 192), 1)
    assert (wide.tile, wide.consumers) == ((256, 64), 2)


def test_blackwell_takes_what_is_asked_for(invoke: Any, kernels: Any) -> None:
    """On sm_100a tile, cluster, CTAs of an instruction and stages arrive, each with what goes with it."""
    asked = (("--tile", "128x64"), ("--cluster", "1x1"), ("--cta-group", 1, "--stages", 2), ("--tile", "64x96"))
    for options in asked:
        result = invoke("run", "matmul", *SMALL, "--target", "sm_100a", *options)
        assert result.exit_code == 0, result.output
    tile, alone, single, other = (call["config"] for call in kernels.matmul)
    assert {call["target"] for call in kernels.matmul} == {"sm_100a"}
    assert tile.tile == (128, 64)
    assert (alone.cta_group, alone.cluster) == (1, (1, 1))
    assert (single.cta_group, single.stages) == (1, 2)
    assert other == BlackwellConfig(tile=(64, 96), cluster=(2, 1))


def test_a_schedule_that_is_asked_for(invoke: Any, kernels: Any) -> None:
    """Consumers in turn come with a tile that suits them, or with the one that is asked for."""
    for options in ((), ("--tile", "64x192"), ("--tile", "64x72", "--stages", 3)):
        result = invoke("run", "matmul", *SMALL, "--schedule", "pingpong", *options)
        assert result.exit_code == 0, result.output
    chosen, known, other = (call["config"] for call in kernels.matmul)
    assert {config.schedule for config in (chosen, known, other)} == {"pingpong"}
    assert (known.tile, known.consumers) == ((64, 192), 2)
    assert other == MatmulConfig(tile=(64, 72), cluster=(1, 1), schedule="pingpong", stages=3)


def test_streamed_tiles_that_are_asked_for(invoke: Any, kernels: Any) -> None:
    """They come with the best config that streams, or with any number of ranges, and no other shares of K."""
    for options in ((2,), (5,), (2, "--tile", "64x72")):
        result = invoke("run", "matmul", "--m", 64, "--n", 2112, "--k", 7168, "--stream-k", *options)
        assert result.exit_code == 0, result.output
    configs = [call["config"] for call in kernels.matmul]
    assert [config.stream_k for config in configs] == [2, 5, 2]
    assert {config.split_k for config in configs} == {1}
    assert configs[2].tile == (64, 72)


def test_a_b200_is_taken_for_its_target(invoke: Any, kernels: Any, bare_gpu: Any) -> None:
    """A GPU of compute capability 10.0 runs sm_100a, and is passed over for sm_90a."""
    bare_gpu((10, 0))
    assert invoke("run", "matmul", *SMALL, "--target", "sm_100a").exit_code == 0
    assert invoke("run", "matmul", *SMALL).exit_code == 0
    assert [call["target"] for call in kernels.matmul] == ["cuda", "sm_90a"]


@pytest.mark.parametrize(
    ("flops", "words"),
    [(0, "0 FLOP/s"), (178.2, "178 FLOP/s"), (65536, "66 kFLOP/s"), (3.06e8, "306 MFLOP/s"), (6.1e14, "610.0 TFLOP/s")],
)
def test_a_pace_shows_its_first_digits(flops: float, words: str) -> None:
    """A tiny call on the emulator is slow, not still."""
    assert pace(flops) == words
