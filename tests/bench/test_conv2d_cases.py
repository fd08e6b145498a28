"""Convolutions as cases of benchmarks: shapes in words, references, the suite, and how they are tuned."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import numpy as np
import pytest

import tilekit
from tests.bench.simulated import SimulatedMachine
from tests.conv2d.convolutions import convolved
from tilekit.bench import random_layers
from tilekit.bench.conv2d import ConvWorkload
from tilekit.bench.conv2d_gradients import GradientWorkload
from tilekit.bench.entrants import Entrant, tilekit_entrants
from tilekit.bench.layers import FUSED_LAYERS, GRADIENTS, LAYERS
from tilekit.bench.matmul import ResultCheck, run
from tilekit.bench.report import summaries
from tilekit.bench.suites import SUITES, select
from tilekit.dtypes import F16, F32
from tilekit.errors import ArgumentError
from tilekit.targets import SM_90A
from tilekit.tuning import suite, tuner, workloads

SHAPES = (
    "2x7x6x8 16x3x3 s2x1 p1",
    "1x5x5x3 8x5x2 p2x0 d1x3",
    "3x4x4x16 8x1x1",
    "1x6x6x8 8x3x3 p1 g2",
)


@pytest.mark.parametrize("shape", [*SHAPES, *(layer.label for layer in LAYERS[::9])])
def test_a_shape_is_read_as_it_is_written(shape: str) -> None:
    """The label of what a shape in words describes is the shape."""
    assert ConvWorkload.parse(shape).label == shape


@pytest.mark.parametrize(
    "shape", ["", "1x2x3 4x5x6", "1x5x5x8 8x3x3 q1", "1x5x5x8  8x3x3", "1x5x5x8 8x3x3 s0", "1x2x2x8 8x3x3"]
)
def test_what_is_no_shape(shape: str) -> None:
    """Other words, letters and numbers, and filters larger than the images."""
    with pytest.raises(ArgumentError):
        ConvWorkload.parse(shape)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_reference_is_the_definition(shape: str) -> None:
    """Rows gathered from the images times the filters are the convolution; a wrong element is seen."""
    like = ConvWorkload((1, 1, 1, 8), (8, 1, 1), a_dtype=F16, b_dtype=F16, out_dtype=F32, bias=True, residual=True)
    case = ConvWorkload.parse(shape, like)
    operands = case.operands(3)
    how = (case.stride, case.padding, case.dilation, case.groups)
    right = convolved(operands.a, operands.b, *how) + operands.bias + operands.residual
    assert right.shape == case.out_shape
    assert case.accuracy(operands, right).worst < 1e-3
    right.flat[Random(shape).randrange(right.size)] += 0.1
    assert not case.accuracy(operands, right).right


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_case_is_checked_and_timed(shape: str) -> None:
    """tilekit's entrant computes it, with all that can be fused; one that has an element wrong is found."""
    types = {"a_dtype": F16, "b_dtype": F16, "out_dtype": F16}
    like = ConvWorkload((1, 1, 1, 8), (8, 1, 1), bias=True, activation="relu", residual=True, **types)
    case, machine = ConvWorkload.parse(shape, like), SimulatedMachine()
    machine.l2_bytes = 1
    ours = next(entrant for entrant in tilekit_entrants(machine) if entrant.family == case.family == "fused_conv2d")
    sets = [case.operand_set(machine, itertools.count(turn)) for turn in (0, 9)]
    check = ResultCheck(case, machine, sets)

    def work(spoil: bool) -> None:
        for operands in sets:
            ours.launch(*operands)
            operands[-1][0, 0, 0, 0] += 40 * spoil

    assert check(lambda: work(False)) <= case.error_limit
    assert check(lambda: work(True)) > case.error_limit


def test_a_run_measures_convolutions() -> None:
    """From the suite's workloads to a case, with a peer that is refused a line in the table."""
    machine = SimulatedMachine()

    def timed(launch: Any) -> Any:
        def costing(*operands: Any) -> None:
            machine.spend(1e-6)
            launch(*operands)

        return costing

    ours = next(entrant for entrant in tilekit_entrants(machine) if entrant.family == "conv2d")
    machine.l2_bytes = 1
    (case,) = run([ConvWorkload.parse(SHAPES[0])], [Entrant(ours.name, timed(ours.launch), "conv2d")], machine)
    assert (case.label, case.results[0].failure, case.results[0].us is not None) == (SHAPES[0], None, True)


def test_a_fused_case_shows_what_is_fused() -> None:
    """A part of it is timed unchecked and is no peer; a library's new arrays are collected before the check."""
    machine, made = SimulatedMachine(), {}
    machine.l2_bytes = 1
    case = ConvWorkload.parse(SHAPES[0], replace(ConvWorkload((1, 1, 1, 8), (8, 1, 1)), bias=True, residual=True))
    ours, part = (entrant for entrant in tilekit_entrants(machine) if entrant.family == "fused_conv2d")

    def library(*operands: Any) -> None:
        out = np.empty_like(operands[-1])
        ours.launch(*operands[:-1], out)
        made[operands[-1].ctypes.data] = out

    def collect(*operands: Any) -> None:
        operands[-1][...] = made[operands[-1].ctypes.data]

    def costing(entrant: Entrant, seconds: float) -> Entrant:
        def launch(*operands: Any) -> None:
            machine.spend(seconds)
            entrant.launch(*operands)

        return replace(entrant, launch=launch)

    peer = Entrant("library", library, "fused_conv2d", collect=collect)
    careless = Entrant("careless", library, "fused_conv2d")
    entrants = [costing(ours, 2e-6), costing(part, 1e-6), costing(peer, 3e-6), costing(careless, 1e-6)]
    (found,) = run([case], entrants, machine)
    assert [result.failure is None for result in found.results] == [True, True, True, False]
    assert found.results[1].error is None
    assert (round(found.results[1].ratio, 2), round(found.worst_ratio, 2)) == (0.5, 1.5)
    lines = {line.peer: round(line.geomean, 2) for line in summaries([replace(found, suite="conv2d-fused")])}
    assert lines == {part.name: 0.5, "library": 1.5, "quickest peer": 1.5}
    worse = replace(
        found, suite="conv2d-fused", kind="worse", results=[found.results[0], replace(found.results[2], ratio=0.4)]
    )
    for order in ([worse, replace(found, suite="conv2d-fused")], [replace(found, suite="conv2d-fused"), worse]):
        (line,) = (line for line in summaries(order) if line.peer == "library")
        assert (line.worst, line.worst_case) == (0.4, f"{found.label} worse")


@pytest.mark.parametrize("of", ["images", "filters"])
@pytest.mark.parametrize("shape", [*SHAPES[:2], SHAPES[3]])
def test_a_gradient_is_checked_and_timed(shape: str, of: Any) -> None:
    """tilekit's entrant computes both gradients, which are collected; one that has an element wrong is found."""
    types = {"a_dtype": F16, "b_dtype": F16, "out_dtype": F16}
    case = GradientWorkload(ConvWorkload.parse(shape, ConvWorkload((1, 1, 1, 8), (8, 1, 1), **types)), of)
    machine = SimulatedMachine()
    machine.l2_bytes = 1
    (ours,) = (entrant for entrant in tilekit_entrants(machine) if entrant.family == case.family)
    sets = [case.operand_set(machine, itertools.count(turn)) for turn in (0, 9)]
    check = ResultCheck(case, machine, sets)

    def collect(*operands: Any, spoil: float = 0.0) -> None:
        ours.collect(*operands)
        operands[-1][0, 0, 0, 0] += spoil

    def work() -> None:
        for operands in sets:
            ours.launch(*operands)

    assert check(work, collect) <= case.error_limit
    assert check(work, partial(collect, spoil=40)) > case.error_limit


def test_gradients_are_of_layers() -> None:
    """Ten of the list, each with both gradients, with strides and without, of 1x1 filters too."""
    assert {case.label for case in GRADIENTS} < {layer.label for layer in LAYERS}
    assert [case.of for case in GRADIENTS] == ["images", "filters"] * 10
    assert {case.layer.filters[1] for case in GRADIENTS} == {1, 3}
    assert {case.layer.stride[0] for case in GRADIENTS} == {1, 2}
    assert {case.kind for case in GRADIENTS} == {"bf16→bf16 of images", "bf16→bf16 of filters"}


def test_layers_are_drawn() -> None:
    """A seed has its layers, fewer are the beginning of more; kinds have about their parts, and all are legal."""
    assert random_layers.SUITE.draw(3, 20) == random_layers.SUITE.draw(3, 40)[:20]
    assert [case.workload for case in select(["conv2d-random"], 5, seed=3)] == random_layers.SUITE.draw(3, 5)
    assert len(select(["conv2d-random"])) == random_layers.SUITE.count
    found = random_layers.SUITE.draw(1, 600)
    parts = {
        "1x1": (sum(layer.filters[1:] == (1, 1) for layer in found), 0.4),
        "3x3": (sum(layer.filters[1:] == (3, 3) for layer in found), 0.4),
        "f16": (sum(layer.a_dtype is F16 for layer in found), 1 / 3),
        "fused": (sum(layer.bias for layer in found), 0.25),
        "residual": (sum(layer.residual for layer in found), 0.125),
        "groups": (sum(layer.groups > 1 for layer in found), 1 / 12),
        "stems": (sum(layer.x[3] < 8 for layer in found), 1 / 16),
    }
    assert {name: count for name, (count, part) in parts.items() if abs(count / 600 - part) > 0.06} == {}
    assert max(layer.bytes for layer in found) <= random_layers.MOST_BYTES
    assert {layer.dilation for layer in found} == {(1, 1), (2, 2)}
    with pytest.raises(ArgumentError, match=r"random or conv2d-random alone"):
        select(["conv2d-random", "conv2d"])


def test_fused_layers_are_layers() -> None:
    """Each is one of the list, with a bias and a relu, once without a residual and once with one."""
    assert {layer.label for layer in FUSED_LAYERS} < {layer.label for layer in LAYERS}
    assert {(x.bias, x.activation, x.family) for x in FUSED_LAYERS} == {(True, "relu", "fused_conv2d")}
    assert [layer.residual for layer in FUSED_LAYERS] == [False, True] * (len(FUSED_LAYERS) // 2)


def test_the_suite_has_forty_layers() -> None:
    """Networks of the published figures, each layer once: of a stem, strides, 1x1 filters and channels beside 64."""
    assert SUITES["conv2d"].cases == LAYERS
    assert len({layer.label for layer in LAYERS}) == len(LAYERS) >= 40
    assert {"32x224x224x3 64x7x7 s2 p3", "32x56x56x64 64x3x3 p1", "2x64x64x320 4x3x3 p1"} <= {x.label for x in LAYERS}
    assert all(layer.spec.own_loaders or layer.filters[1:] == (1, 1) for layer in LAYERS)


def test_layers_are_tuned() -> None:
    """All are tunable, and what a worker is asked for, as JSON, builds and binds their kernels."""
    assert len(suite.tunable(select(["conv2d"]))) == len(LAYERS)
    machine = SimulatedMachine()
    for shape in SHAPES:
        case = ConvWorkload.parse(shape)
        asked = json.loads(json.dumps(tuner.request(case, SM_90A, [])))
        assert workloads.from_values(asked["family"], asked["workload"]) == case
        x, w, filtered, out = operands = case.operand_set(machine, itertools.count())
        config = tilekit.conv2d_kernel_for(x, w, **filtered.how).config
        case.bind(case.kernel("sm_90a", config), operands)()
        expected = convolved(x, w, case.stride, case.padding, case.dilation, case.groups)
        assert np.linalg.norm(out - expected) / np.linalg.norm(expected) <= case.error_limit
