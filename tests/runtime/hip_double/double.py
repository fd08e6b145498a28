"""A HIP runtime in Python, behind a library that hip-python loads as ROCm's: launches arrive at a function.

Its memory is this process's, so that what a launch is handed to may read and write buffers by their addresses.
"""

# ruff: noqa: N802 (methods have the names of the functions that they stand for)
from __future__ import annotations

import ctypes
import struct
import subprocess
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilekit.runtime.amd_toolchain import find_amd_tools

SOURCE = Path(__file__).with_name("libamdhip64.c")
UNKNOWN = 999  # hipErrorUnknown
KEYS = {"pointer": 1, "size": 2, "end": 3}
RECEIVER = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint64))


def build(folder: Path) -> Path:
    """Compile the library where a ROCm installation in `folder` would have it; return the folder."""
    (folder / "lib").mkdir(parents=True)
    zig = find_amd_tools().assembler[0]
    command = [zig, "cc", "-shared", "-fPIC", "-O1", "-o", str(folder / "lib" / "libamdhip64.so"), str(SOURCE)]
    subprocess.run(command, check=True, capture_output=True)
    return folder


@dataclass
class Launch:
    """What arrived with one launch."""

    image: bytes
    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    kernarg: bytes
    stream: int


@dataclass
class Double:
    """The runtime behind a library that `build` made.

    Attributes
    ----------
    library
        The library's path.
    execute
        Called with each launch; a number other than None is the launch's hipError_t.
    results
        The hipError_t that the next calls of a function return, by name.
    """

    library: Path
    execute: Callable[[Launch], int | None] = lambda launch: None
    chips: tuple[str, ...] = ("gfx942:sramecc+:xnack-", "gfx950:sramecc+:xnack-")
    results: dict[str, list[int]] = field(default_factory=dict)
    launches: list[Launch] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    current: int = 0

    def __post_init__(self) -> None:
        self._objects: dict[int, Any] = {}
        self._receiver = RECEIVER(self._receive)
        ctypes.CDLL(str(self.library)).double_hand_to(self._receiver)

    def _receive(self, name: bytes, arguments: Any) -> int:
        function = name.decode()
        self.calls.append(function)
        pending = self.results.get(function)
        if pending:
            return pending.pop(0)
        try:
            answer = getattr(self, "_" + function)(*(arguments[i] for i in range(11)))
        except Exception:  # it cannot pass through the C library; the caller gets an error, and the test a trace
            traceback.print_exc()
            return UNKNOWN
        return 0 if answer is None else int(answer)

    def _new(self, place: int, thing: Any) -> None:
        """Keep a thing, and write its handle where the caller wants it."""
        handle = 0x1000 + 16 * len(self._objects)
        self._objects[handle] = thing
        ctypes.c_uint64.from_address(place).value = handle

    def _hipInit(self, *_: int) -> None: ...
    def _hipDeviceSynchronize(self, *_: int) -> None: ...
    def _hipStreamSynchronize(self, *_: int) -> None: ...
    def _hipEventSynchronize(self, *_: int) -> None: ...

    def _hipGetErrorString(self, *_: int) -> int:
        self._words = ctypes.create_string_buffer(b"described by the runtime")
        return ctypes.addressof(self._words)

    def _hipGetDeviceCount(self, place: int, *_: int) -> None:
        ctypes.c_int.from_address(place).value = len(self.chips)

    def _hipGetDevice(self, place: int, *_: int) -> None:
        ctypes.c_int.from_address(place).value = self.current

    def _hipSetDevice(self, ordinal: int, *_: int) -> None:
        self.current = ordinal

    def _hipGetDevicePropertiesR0600(self, place: int, ordinal: int, *_: int) -> None:
        properties = properties_of(f"AMD double {ordinal}".encode(), self.chips[ordinal].encode())
        ctypes.memmove(place, properties, len(properties))

    def _hipMalloc(self, place: int, size: int, *_: int) -> None:
        buffer = ctypes.create_string_buffer(size)
        self._objects[ctypes.addressof(buffer)] = buffer
        ctypes.c_uint64.from_address(place).value = ctypes.addressof(buffer)

    def _hipFree(self, address: int, *_: int) -> None:
        del self._objects[address]

    def _hipPointerGetAttributes(self, place: int, address: int, *_: int) -> int | None:
        inside = (b for b in self._objects.values() if isinstance(b, ctypes.Array))
        if not any(ctypes.addressof(b) <= address < ctypes.addressof(b) + len(b) for b in inside):
            return 1  # hipErrorInvalidValue
        ctypes.c_int.from_address(place + 4).value = self.current  # after the type of memory
        return None

    def _hipMemcpy(self, destination: int, source: int, size: int, *_: int) -> None:
        ctypes.memmove(destination, source, size)

    def _hipModuleLoadData(self, place: int, image: int, *_: int) -> None:
        # As the real one it is not told how long the image is: the headers say.
        header = ctypes.string_at(image, 64)
        (sections,) = struct.unpack_from("<Q", header, 40)
        size, count = struct.unpack_from("<HH", header, 58)
        self._new(place, ctypes.string_at(image, sections + size * count))

    def _hipModuleUnload(self, module: int, *_: int) -> None:
        del self._objects[module]

    def _hipModuleGetFunction(self, place: int, module: int, name: int, *_: int) -> None:
        self._new(place, (self._objects[module], ctypes.string_at(name).decode()))

    def _hipFuncSetAttribute(self, function: int, attribute: int, value: int, *_: int) -> None:
        self.attributes = {**getattr(self, "attributes", {}), attribute: value}

    def _hipModuleLaunchKernel(self, function: int, *rest: int) -> int | None:
        image, kernel = self._objects[function]
        gx, gy, gz, bx, by, bz, shared, stream, params, extra = rest
        assert not params
        key, address, second, size, end = (ctypes.c_uint64 * 5).from_address(extra)
        assert (key, second, end) == tuple(KEYS.values())
        kernarg = ctypes.string_at(address, ctypes.c_size_t.from_address(size).value)
        unsigned = [extent & 0xFFFFFFFF for extent in (gx, gy, gz, bx, by, bz, shared)]
        grid, block = tuple(unsigned[:3]), tuple(unsigned[3:6])
        launch = Launch(image, kernel, grid, block, unsigned[6], kernarg, stream)  # type: ignore[arg-type]
        self.launches.append(launch)
        return self.execute(launch)

    def _hipStreamCreate(self, place: int, *_: int) -> None:
        self._new(place, "stream")

    def _hipStreamDestroy(self, stream: int, *_: int) -> None:
        del self._objects[stream]

    def _hipEventCreate(self, place: int, *_: int) -> None:
        self._new(place, [])

    def _hipEventDestroy(self, event: int, *_: int) -> None:
        del self._objects[event]

    def _hipEventRecord(self, event: int, stream: int, *_: int) -> None:
        self._objects[event].append((len(self.launches), stream))

    def _hipEventElapsedTime(self, place: int, start: int, stop: int, *_: int) -> None:
        passed = self._objects[stop][-1][0] - self._objects[start][-1][0]
        ctypes.c_float.from_address(place).value = 0.5 * passed


def properties_of(name: bytes, chip: bytes) -> bytes:
    """Return a hipDeviceProp_t with these names, laid out as hip-python reads it."""
    from hip import hip

    properties = hip.hipDeviceProp_t()
    size = properties.c_sizeof() if callable(properties.c_sizeof) else properties.c_sizeof
    properties.multiProcessorCount, properties.totalGlobalMem, properties.sharedMemPerBlock = 304, 192 << 30, 65536
    memory = (ctypes.c_char * size).from_address(int(properties))
    kept = memory.raw
    # Where the chip's name lies: with every four bytes numbered, it reads its own place.
    memory.raw = b"".join(f"{place:04x}".encode() for place in range(size // 4)) + bytes(size % 4)
    numbered = properties.gcnArchName
    place = 4 * int(numbered[:4], 16)
    memory.raw = kept
    memory[0 : len(name)] = name
    memory[place : place + len(chip)] = chip
    return bytes(memory.raw)
