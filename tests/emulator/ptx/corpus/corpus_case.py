"""One kernel of the corpus: which PTX files it has, how it is launched and what must come out.

A case is a function that draws inputs and says what the kernel should compute from them::

    @case("triton/add", "sm_80", "sm_90a")
    def add(rng):
        x, y = normal(rng, 1000), normal(rng, 1000)
        z = empty_like(x)
        return Launch((4,), [x, y, z, i32(1000)], {"z": Expect(z, x + y)})

The PTX texts lie under ``ptx/`` as the compiler wrote them, below a header of comments whose ``launch:`` line gives
what the compiler decided: entry, threads, CTAs of a cluster, shared memory, hidden arguments.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from tilekit.emulator import Device, LaunchReport
from tilekit.emulator.ptx.memory.swizzle import Swizzle

PTX = Path(__file__).parent / "ptx"
Array = np.ndarray[Any, Any]
i32, i64, f32 = np.int32, np.int64, np.float32


@dataclass(frozen=True)
class Expect:
    """An array that the kernel writes, what must be in it afterwards, and how near (exact without tolerances).

    ``shuffled``: in any order.
    """

    array: Array
    reference: Any
    rtol: float = 0.0
    atol: float = 0.0
    shuffled: bool = False


@dataclass(frozen=True)
class Map:
    """A tensor map of an array to pass as an argument; box and swizzle as for `Device.tensor_map_tiled`.

    Triton decides on both; its kernels take the shape and the strides after the map. With ``corners``, an im2col map:
    the lower and upper corner of its box of pixels, the same along every spatial dimension.
    """

    array: Array
    box: tuple[int, ...] = ()
    swizzle: Swizzle | None = "128B"
    corners: tuple[int, int] | None = None


@dataclass(frozen=True)
class Addresses:
    """An array of the addresses of arrays, as grouped kernels take them."""

    arrays: Sequence[Array]


@dataclass(frozen=True)
class Launch:
    """Grid in clusters, arguments in the order of the parameters without the hidden ones, and what is expected.

    ``threads`` and ``shared_bytes`` are for kernels whose compiler leaves them to the caller. ``printed`` are the lines
    of its ``printf`` calls, in any order.
    """

    grid: tuple[int, ...]
    args: list[Any]
    expect: Mapping[str, Expect]
    threads: int | tuple[int, ...] = 0
    shared_bytes: int = 0
    cooperative: bool = False
    printed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Case:
    """A kernel for one target."""

    name: str
    target: str
    draw: Callable[[np.random.Generator], Launch]

    def __str__(self) -> str:
        return f"{self.name}-{self.target}"

    @property
    def path(self) -> Path:
        """The PTX file."""
        return PTX / f"{self.name}.{self.target}.ptx"


CASES: list[Case] = []
_SWIZZLES: tuple[Swizzle | None, ...] = (None, "32B", "64B", "128B")


def case(name: str, *targets: str) -> Callable[[Callable[[np.random.Generator], Launch]], Any]:
    """Register a case for its targets."""

    def register(draw: Callable[[np.random.Generator], Launch]) -> Any:
        CASES.extend(Case(name, target, draw) for target in targets)
        return draw

    return register


def header(text: str) -> dict[str, str]:
    """The ``key: value`` comments at the head of a PTX file of the corpus."""
    fields = {}
    for line in text.splitlines():
        key, separator, value = line.removeprefix("// ").partition(": ")
        if not line.startswith("// ") or not separator:
            break
        fields[key] = value
    return fields


def emulate(
    case: Case, *, seed: int = 0, drawn: int | None = None, schedule: Any = "adversarial", check: Any = "full"
) -> tuple[LaunchReport, Launch]:
    """Run a case's PTX unchanged; the launch's arrays hold the results afterwards.

    Inputs are drawn from the seed too, unless it is given what they are ``drawn`` from.
    """
    text = case.path.read_text()
    compiled = json.loads(header(text)["launch"])
    descriptors = iter(json.loads(header(text).get("descriptors", "[]")))
    launch = case.draw(np.random.default_rng(seed if drawn is None else drawn))
    device = Device(case.target, seed=seed, schedule=schedule, check=check)
    buffers: dict[int, tuple[Array, Any]] = {}

    def upload(array: Array) -> Any:
        return buffers.setdefault(id(array), (array, device.buffer(array)))[1]

    def arguments(value: Any) -> list[Any]:
        match value:
            case np.ndarray():
                return [upload(value)]
            case Map() if value.box:
                return [device.tensor_map_tiled(upload(value.array), value.box, swizzle=value.swizzle)]
            case Map():
                decided = next(descriptors)
                box, swizzle = decided["block_size"][::-1], _SWIZZLES[decided["swizzle"]]
                steps = [stride // value.array.itemsize for stride in value.array.strides]
                shape_and_strides = [*map(np.int32, value.array.shape), *map(np.int64, steps)]
                if value.corners is None:
                    return [device.tensor_map_tiled(upload(value.array), box, swizzle=swizzle), *shape_and_strides]
                lower, upper = ([corner] * (value.array.ndim - 2) for corner in value.corners)
                pixels = device.tensor_map_im2col(
                    upload(value.array), lower=lower, upper=upper, channels_per_pixel=box[0], pixels_per_column=box[1],
                    swizzle=swizzle,
                )  # fmt: skip
                return [pixels, *shape_and_strides]
            case Addresses():
                return [device.buffer(np.array([upload(a).address for a in value.arrays], np.uint64))]
        return [value]

    cluster = compiled.get("cluster", 1)
    grid = (launch.grid[0] * cluster, *launch.grid[1:])
    args = [given for value in launch.args for given in arguments(value)]
    for size in compiled.get("scratch", ()):
        count = size * int(np.prod(grid))
        args.append(device.buffer(np.zeros(count, np.uint8)) if count else None)
    report = device.load(text)[compiled["entry"]].launch(
        grid,
        compiled.get("threads") or launch.threads,
        args,
        cluster=(cluster, 1, 1) if cluster > 1 else None,
        shared_bytes=compiled.get("shared_bytes", 0) or launch.shared_bytes,
        cooperative=launch.cooperative,
    )
    for array, buffer in buffers.values():
        array[...] = buffer.read()
    return report, launch


def compare(launch: Launch, printed: str) -> None:
    """Fail where a result, or what was printed, is not what the reference says."""
    assert sorted(printed.splitlines()) == sorted(launch.printed)
    for name, expect in launch.expect.items():
        got = expect.array.astype(np.float64) if expect.array.dtype.kind in "fV" else expect.array
        want = np.asarray(expect.reference)
        want = want.astype(np.float64) if expect.array.dtype.kind in "fV" else want
        if expect.shuffled:
            got, want = np.sort(got), np.sort(want)
        if expect.rtol or expect.atol:
            np.testing.assert_allclose(got, want, expect.rtol, expect.atol, err_msg=name)
        else:
            np.testing.assert_array_equal(got, want, err_msg=name)


# -- inputs ----------------------------------------------------------------------------------------------------------


bf16, e5m2, e4m3 = ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn


def normal(rng: np.random.Generator, *shape: int, dtype: Any = np.float32) -> Array:
    """Normal numbers of a type."""
    return rng.standard_normal(shape).astype(np.float32).astype(dtype)


def whole(rng: np.random.Generator, *shape: int, dtype: Any = np.float32, most: int = 3) -> Array:
    """Small whole numbers, of which short sums of products are exact."""
    return rng.integers(-most, most + 1, shape).astype(np.float32).astype(dtype)


def unset(*shape: int, dtype: Any = np.float32) -> Array:
    """Memory that no kernel should read before it is written: NaNs, or a pattern."""
    dtype = np.dtype(dtype)
    return np.full(shape, 0xFF, np.uint8).repeat(dtype.itemsize, -1).view(dtype) if shape else np.zeros((), dtype)


def product(a: Array, b: Array) -> Array:
    """Matrix product in double precision."""
    return a.astype(np.float64) @ b.astype(np.float64)
