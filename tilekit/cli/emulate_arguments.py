"""The arguments of ``tilekit emulate``: buffers, scalars and tensor maps, as words on a command line.

=========================== =========================================================================================
``f32[64,64]=random``       a buffer of uniform random numbers in [-1, 1), small integers for integer types;
                            ``random:7`` with seed 7
``bf16[64,64]=range``       0, 1, 2, … in C order
``f32[1024]=zeros``         also ``ones``, ``nan``, or any number
``@file.npy``               a buffer from a file; ``bf16[64,64]=@file.npy`` converts it
``const:f32[64]=random``    a buffer, of any of these forms, that the kernel may only read: a store to it is a fault
``i32:7``                   a number by value
``map:0,box=64x64``         a tensor map of argument 0's buffer, box innermost dimension first; also
                            ``swizzle=128B|64B|32B``, ``dtype=…``, ``oob_fill=nan``
``null``                    a null pointer
=========================== =========================================================================================
"""

from __future__ import annotations

import difflib
import io
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from tilekit.emulator import Buffer, Device, PtxDevice
from tilekit.errors import ArgumentError

__all__ = ["CODE", "FILES", "Argument", "arguments_of", "read_file", "readable", "require_writable"]

CODE = "TK-CLI-007"
_LARGEST = 1 << 32
FILES = "TK-CLI-008"
TYPES: dict[str, np.dtype[Any]] = {
    **{f"{letter}{bits}": np.dtype(f"{kind}{bits // 8}") for letter, kind in ("si", "ii", "uu", "bu")
       for bits in (8, 16, 32, 64)},
    **{f"f{bits}": np.dtype(f"f{bits // 8}") for bits in (16, 32, 64)},
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "e4m3fnuz": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "e5m2fnuz": np.dtype(ml_dtypes.float8_e5m2fnuz),
}  # fmt: skip
_FILLS = ("random", "random:SEED", "range", "zeros", "ones", "nan")
"""What an array can be filled with, beside numbers and files."""
_FORMS = (
    f"TYPE[SHAPE]={'|'.join(_FILLS)}|NUMBER|@FILE.npy, @FILE.npy, const: before these, TYPE:NUMBER, "
    "map:ARGUMENT,box=AxB[,swizzle=128B], or null"
)
_BUFFER = re.compile(r"(\w+)\[([\d, ]*)\]=(.+)")
_READ_ONLY = "const:"
_SCALAR = re.compile(r"(\w+):(.+)")
_MAP_OPTIONS = ("box", "swizzle", "dtype", "oob_fill")

Argument = Any
"""A buffer, a tensor map, a NumPy scalar, or None for a null pointer."""


def _bad(text: str, legal: str, nearest: object = None) -> ArgumentError:
    return ArgumentError.of("--arg", text, legal=legal, nearest=nearest, code=CODE)


def arguments_of(device: Device, texts: Sequence[str]) -> list[Argument]:
    """The arguments that words describe, with their buffers on a device.

    Raises
    ------
    ArgumentError
        Naming the word, what is legal, and the nearest legal one.
    """
    found: list[Argument] = []
    for index, text in enumerate(texts):
        if text.startswith("map:"):
            found.append(_tensor_map(device, found, text))
        elif text == "null":
            found.append(None)
        elif (array := _array_of(text.removeprefix(_READ_ONLY))) is not None:
            found.append(device.buffer(array, f"argument {index}", writable=not text.startswith(_READ_ONLY)))
        elif (match := _SCALAR.fullmatch(text)) and not text.startswith(_READ_ONLY):
            found.append(_number(text, _dtype(text, match[1]), match[2]))
        else:
            name, _, value = text.partition("=")
            raise _bad(text, _FORMS, f"{name}:{value}" if name in TYPES else None)
    return found


def _array_of(text: str) -> np.ndarray[Any, Any] | None:
    """What a buffer is to hold; None of words for something else."""
    if text.startswith("@"):
        return _loaded(text[1:])
    match = _BUFFER.fullmatch(text)
    return None if match is None else _array(text, *match.groups())


def _dtype(text: str, name: str) -> np.dtype[Any]:
    if name not in TYPES:
        close = difflib.get_close_matches(name, TYPES, 1)
        raise _bad(text, f"a type of {', '.join(TYPES)}", text.replace(name, close[0], 1) if close else None)
    return TYPES[name]


def _number(text: str, dtype: np.dtype[Any], value: str) -> Any:
    """A NumPy scalar of exactly this type."""
    try:
        if dtype.kind in "iu":
            number = int(value, 0)
            limits = np.iinfo(dtype)
            if not limits.min <= number <= limits.max:
                raise _bad(text, f"{limits.min} to {limits.max}", min(max(number, limits.min), limits.max))
            return dtype.type(number)
        return np.float64(value).astype(dtype)
    except ValueError as error:
        if isinstance(error, ArgumentError):
            raise
        raise _bad(text, f"a number behind '{text.removesuffix(value)}'") from None


def _array(text: str, name: str, shape_text: str, fill: str) -> np.ndarray[Any, Any]:
    dtype = _dtype(text, name)
    try:
        shape = tuple(int(part) for part in shape_text.split(",") if part.strip())
    except ValueError:
        raise _bad(text, "a shape of whole numbers such as [64,64]") from None
    if math.prod(shape) * dtype.itemsize > _LARGEST:
        raise _bad(text, f"at most {_LARGEST} bytes")
    if fill.startswith("@"):
        loaded = _loaded(fill[1:])
        if loaded.shape != shape:
            wanted = ",".join(map(str, loaded.shape))
            raise _bad(text, f"the shape of {fill[1:]}, [{wanted}]", f"{name}[{wanted}]={fill}")
        return loaded.astype(dtype)
    if fill == "range":
        return np.arange(math.prod(shape)).reshape(shape).astype(dtype)
    if fill == "random" or fill.startswith("random:"):
        seed = fill.partition(":")[2] or "0"
        if not seed.isdecimal() or len(seed) > 18:
            raise _bad(text, "a seed of 18 digits at most behind 'random:'")
        rng = np.random.default_rng(int(seed))
        if dtype.kind in "iu":
            return rng.integers(0 if dtype.kind == "u" else -8, 8, shape).astype(dtype)
        return rng.uniform(-1, 1, shape).astype(dtype)
    value = {"zeros": "0", "ones": "1"}.get(fill, fill)
    if not re.match(r"[-+.]?\d|[-+]?(inf|nan)", value):
        close = difflib.get_close_matches(fill, _FILLS, 1)
        nearest = text.removesuffix(fill) + close[0] if close else None
        raise _bad(text, f"a number, @FILE.npy, {', '.join(_FILLS)} behind '='", nearest)
    return np.full(shape, _number(text, dtype, value), dtype)


def _loaded(path: str) -> np.ndarray[Any, Any]:
    data = read_file(Path(path), "--arg")
    try:
        array: np.ndarray[Any, Any] = np.load(io.BytesIO(data), allow_pickle=False)
    except ValueError as error:
        raise ArgumentError(f"--arg @{path}: not an array file that NumPy can read: {error}", code=FILES) from None
    return array


def _tensor_map(device: Device, before: Sequence[Argument], text: str) -> Argument:
    if not isinstance(device, PtxDevice):
        raise _bad(text, f"anything else: {device.chip.name} has no tensor maps")
    first, *rest = text.removeprefix("map:").split(",")
    buffers = [index for index, argument in enumerate(before) if isinstance(argument, Buffer)]
    if first not in map(str, buffers):
        legal = f"the number of a buffer before it ({', '.join(map(str, buffers)) or 'there is none'}) behind 'map:'"
        raise _bad(text, legal, buffers[-1] if buffers else None)
    options: dict[str, str] = {}
    for part in rest:
        name, _, value = part.partition("=")
        if name not in _MAP_OPTIONS or not value:
            close = difflib.get_close_matches(name, _MAP_OPTIONS, 1)
            raise _bad(text, f"options {', '.join(_MAP_OPTIONS)} as name=value", close[0] if close else None)
        options[name] = value
    box = options.pop("box", "")
    if not re.fullmatch(r"\d{1,18}(x\d{1,18})*", box):
        raise _bad(text, "box=AxB in elements, innermost dimension first", f"map:{first},box=64x64")
    settings: dict[str, Any] = options
    try:
        return device.tensor_map_tiled(before[int(first)], tuple(map(int, box.split("x"))), **settings)
    except ValueError as error:
        raise ArgumentError(f"--arg {text}: {error}", code=CODE) from None


def read_file(path: Path, option: str) -> bytes:
    """Contents of a file that an option names.

    Raises
    ------
    ArgumentError
        If it cannot be read; names the file there that is most like it.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        folder = path if path.is_dir() else path.parent
        names = [other.name for other in folder.iterdir() if other.is_file()] if folder.is_dir() else []
        close = difflib.get_close_matches(path.name, names, 1)
        hint = f"; nearest: {folder / close[0]}" if close else ""
        raise ArgumentError(f"{option}: {path} cannot be read: {error.strerror}{hint}", code=FILES) from None


def require_writable(path: Path, option: str) -> None:
    """Check that the folder of a file to be written is there, before anything runs.

    Raises
    ------
    ArgumentError
        If it is not.
    """
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise ArgumentError(f"{option}: {path} cannot be written: no such folder, or a folder itself", code=FILES)


def readable(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array in a type that every NumPy prints and saves: float32 for the 8- and 16-bit types that it lacks."""
    return (
        array.astype(np.float32) if array.dtype.kind == "V" or array.dtype.name.startswith(("bf", "float8")) else array
    )
