"""A HIP runtime in Python, behind a library that hip-python loads as ROCm's: launches arrive at a function.

Its memory is that of the emulator (`GlobalMemory`), so that a launch may be handed to an emulated device. As on a GPU,
launches are made when something waits for them, and a kernel that dies is told of by whatever is called next.
"""

# ruff: noqa: N802 (methods have the names of the functions that they stand for)
from __future__ import annotations

import ctypes
import struct
import subprocess
import traceback
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from tilekit.emulator import MemoryFault
from tilekit.emulator.core.memory.memory import Allocation, GlobalMemory
from tilekit.emulator.gcn.binary.code_object import CodeObject, CodeObjectKernel
from tilekit.runtime.amd_toolchain import find_amd_tools

SOURCE = Path(__file__).with_name("libamdhip64.c")
INVALID_VALUE, NOT_FOUND, UNKNOWN = 1, 500, 999  # hipError_t
STATIC_LDS = 65536  # bytes of dynamic LDS that a kernel may have without being allowed more
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
    ordinal: int = 0


class Gpu:
    """What executes launches; this one does nothing. A number other than None is a hipError_t."""

    def load(self, image: bytes, ordinal: int) -> int | None:
        """Take a code object."""

    def launch(self, launch: Launch) -> int | None:
        """Execute a launch to its end."""

    def report(self) -> str:
        """What there is to say of the latest error."""
        return "described by the runtime"


@dataclass
class Double:
    """The runtime behind a library that `build` made.

    Attributes
    ----------
    library
        The library's path.
    gpu
        Executes the launches.
    results
        The hipError_t that the next calls of a function return, by name.
    memory
        Of all devices together.
    launches
        Those that were made, in order; `waiting` are those of each stream that have not been executed.
    lost
        The hipError_t of a kernel that died: every later call returns it.
    """

    library: Path
    chips: tuple[str, ...] = ("gfx942:sramecc+:xnack-", "gfx950:sramecc+:xnack-")
    gpu: Gpu = field(default_factory=Gpu)
    results: dict[str, list[int]] = field(default_factory=dict)
    memory: GlobalMemory = field(default_factory=GlobalMemory)
    launches: list[Launch] = field(default_factory=list)
    waiting: dict[int, list[Launch]] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    attributes: dict[int, dict[int, int]] = field(default_factory=dict)
    current: int = 0
    lost: int = 0

    def __post_init__(self) -> None:
        self._objects: dict[int, Any] = {}
        self._buffers: dict[int, tuple[Allocation, int]] = {}
        self._receiver = RECEIVER(self._receive)
        ctypes.CDLL(str(self.library)).double_hand_to(self._receiver)

    def _receive(self, name: bytes, arguments: Any) -> int:
        function = name.decode()
        self.calls.append(function)
        pending = self.results.get(function)
        if pending:
            return pending.pop(0)
        if self.lost and not function.startswith("hipGetError"):
            return self.lost
        try:
            answer = getattr(self, "_" + function)(*(arguments[i] for i in range(11)))
        except MemoryFault:  # of a copy
            return INVALID_VALUE
        except Exception:  # it cannot pass through the C library; the caller gets an error, and the test a trace
            traceback.print_exc()
            return UNKNOWN
        return 0 if answer is None else int(answer)

    def _drain(self, *streams: int) -> int | None:
        """Execute what waits in these streams, one stream after the other; in all of them without a name."""
        for stream in streams or tuple(self.waiting):
            for launch in self.waiting.pop(stream, ()):
                self.lost = self.gpu.launch(launch) or 0
                if self.lost:
                    return self.lost
        return None

    def _new(self, place: int, thing: Any) -> None:
        """Keep a thing, and write its handle where the caller wants it."""
        handle = 0x1000 + 16 * len(self._objects)
        self._objects[handle] = thing
        ctypes.c_uint64.from_address(place).value = handle

    def _hipInit(self, *_: int) -> None: ...

    def _hipDeviceSynchronize(self, *_: int) -> int | None:
        return self._drain()

    def _hipStreamSynchronize(self, stream: int, *_: int) -> int | None:
        return self._drain(0, stream)

    def _hipEventSynchronize(self, event: int, *_: int) -> int | None:
        return self._drain(0, self._objects[event][-1][1])

    def _hipGetErrorString(self, *_: int) -> int:
        self._words = ctypes.create_string_buffer(self.gpu.report().encode())
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
        allocation = self.memory.allocate(size, f"hipMalloc {len(self._buffers)}")
        self._buffers[allocation.start] = allocation, self.current
        ctypes.c_uint64.from_address(place).value = allocation.start

    def _hipFree(self, address: int, *_: int) -> int | None:
        failed = self._drain()
        self.memory.free(self._buffers.pop(address)[0])
        return failed

    def _hipPointerGetAttributes(self, place: int, address: int, *_: int) -> int | None:
        found = (ordinal for a, ordinal in self._buffers.values() if a.start <= address < a.start + a.size)
        ordinal = next(found, None)
        if ordinal is None:
            return INVALID_VALUE
        ctypes.c_int.from_address(place + 4).value = ordinal  # after the type of memory
        return None

    def _hipMemcpy(self, destination: int, source: int, size: int, kind: int, *_: int) -> int | None:
        failed = self._drain()
        if failed:
            return failed
        from_device, to_device = kind in (2, 3), kind in (1, 3)
        data = self._device_bytes(source, size).tobytes() if from_device else ctypes.string_at(source, size)
        if to_device:
            self._device_bytes(destination, size)[:] = np.frombuffer(data, np.uint8)
        else:
            ctypes.memmove(destination, data, size)
        return None

    def _hipMemsetD32Async(self, address: int, value: int, count: int, stream: int, *_: int) -> int | None:
        failed = self._drain(0, stream)
        self._device_bytes(address, 4 * count).view(np.uint32)[:] = value & 0xFFFFFFFF
        return failed

    def _device_bytes(self, address: int, size: int) -> Any:
        allocation, offset = self.memory.at(address, size, "a copy")
        return allocation.data[offset : offset + size]

    def _hipModuleLoadData(self, place: int, image: int, *_: int) -> int | None:
        # As the real one it is not told how long the image is: the headers say.
        header = ctypes.string_at(image, 64)
        (sections,) = struct.unpack_from("<Q", header, 40)
        size, count = struct.unpack_from("<HH", header, 58)
        data = ctypes.string_at(image, sections + size * count)
        failed = self.gpu.load(data, self.current)
        if failed is None:
            self._new(place, (data, CodeObject.read(data), self.current))
        return failed

    def _hipModuleUnload(self, module: int, *_: int) -> int | None:
        failed = self._drain()
        del self._objects[module]
        return failed

    def _hipModuleGetFunction(self, place: int, module: int, name: int, *_: int) -> int | None:
        image, code_object, ordinal = self._objects[module]
        kernel = code_object.kernels.get(ctypes.string_at(name).decode())
        if kernel is None:
            return NOT_FOUND
        self._new(place, (image, kernel, ordinal))
        return None

    def _hipFuncSetAttribute(self, function: int, attribute: int, value: int, *_: int) -> None:
        self.attributes.setdefault(function, {})[attribute] = ctypes.c_int(value).value

    def _hipModuleLaunchKernel(self, function: int, *rest: int) -> int | None:
        image, kernel, ordinal = self._objects[function]
        *extents, shared, stream, params, extra = rest
        unsigned = [extent & 0xFFFFFFFF for extent in (*extents, shared)]
        grid, block, shared = tuple(unsigned[:3]), tuple(unsigned[3:6]), unsigned[6]
        allowed = max((STATIC_LDS, *self.attributes.get(function, {}).values()))
        if not 0 < prod(block) <= 1024 or shared > allowed or ordinal != self.current:
            return INVALID_VALUE
        if bool(params) == bool(extra):
            return INVALID_VALUE
        kernarg = _of_pointers(params, kernel) if params else _of_buffer(extra)
        kernarg = _with_hidden(kernarg, kernel, grid, block, shared)
        launch = Launch(image, kernel.name, grid, block, shared, kernarg, stream, ordinal)  # type: ignore[arg-type]
        if stream:  # the default stream waits for the others, and they for it
            failed = self._drain(0)
        else:
            failed = self._drain(*(other for other in tuple(self.waiting) if other)) if len(self.waiting) else None
        self.launches.append(launch)
        self.waiting.setdefault(stream, []).append(launch)
        return failed

    def _hipStreamCreate(self, place: int, *_: int) -> None:
        self._new(place, "stream")

    def _hipStreamDestroy(self, stream: int, *_: int) -> int | None:
        failed = self._drain(0, stream)
        del self._objects[stream]
        return failed

    def _hipEventCreate(self, place: int, *_: int) -> None:
        self._new(place, [])

    def _hipEventDestroy(self, event: int, *_: int) -> None:
        del self._objects[event]

    def _hipEventRecord(self, event: int, stream: int, *_: int) -> None:
        self._objects[event].append((len(self.launches), stream))

    def _hipEventElapsedTime(self, place: int, start: int, stop: int, *_: int) -> None:
        passed = self._objects[stop][-1][0] - self._objects[start][-1][0]
        ctypes.c_float.from_address(place).value = 0.5 * passed


def _of_pointers(params: int, kernel: CodeObjectKernel) -> bytes:
    """The kernarg segment of ``kernelParams``: a pointer to each argument that is not hidden."""
    data = bytearray(kernel.metadata[".kernarg_segment_size"])
    explicit = [a for a in kernel.metadata[".args"] if not a[".value_kind"].startswith("hidden_")]
    pointers = (ctypes.c_uint64 * len(explicit)).from_address(params)
    for argument, pointer in zip(explicit, pointers, strict=True):
        place, size = argument[".offset"], argument[".size"]
        data[place : place + size] = ctypes.string_at(pointer, size)
    return bytes(data)


def _of_buffer(extra: int) -> bytes:
    """The kernarg segment of ``extra``: keys and values, up to the end."""
    values: dict[int, int] = {}
    words = (ctypes.c_uint64 * 5).from_address(extra)
    for key, value in zip(words[::2], words[1::2], strict=False):
        values[key] = value
    assert words[4] == KEYS["end"]
    return ctypes.string_at(values[KEYS["pointer"]], ctypes.c_size_t.from_address(values[KEYS["size"]]).value)


def _with_hidden(data: bytes, kernel: CodeObjectKernel, grid: Any, block: Any, shared: int) -> bytes:
    """The segment with hidden arguments as HIP's runtime writes them, whatever stood there."""
    written = bytearray(data)
    for argument in kernel.metadata.get(".args", []):
        kind, place, size = argument[".value_kind"], argument[".offset"], argument[".size"]
        if kind.startswith("hidden_"):
            name, axis = kind.removeprefix("hidden_")[:-2], "xyz".find(kind[-1])
            value = {"block_count": grid[axis], "group_size": block[axis]}.get(name, 0)
            value = {"hidden_grid_dims": 3, "hidden_dynamic_lds_size": shared}.get(kind, value)
            written[place : place + size] = value.to_bytes(size, "little")
    return bytes(written)


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
