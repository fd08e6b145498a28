"""The disk cache of assembled kernels: content-addressed, one file an entry.

An entry is published by a single rename, so readers and writers in any number of processes never see half of one. It
carries its own checksum: a damaged entry is a miss, and the next writer replaces it. Where the folder cannot be
written, kernels are assembled every time, after one warning.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import stat
import struct
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilekit.settings import settings

__all__ = ["CACHE_LIMIT", "CacheFile", "CacheStats", "CacheWarning", "DiskCache", "Entry", "default_cache", "entry_key"]

CACHE_LIMIT = 512 * 2**20
"""Bytes the cache may hold; beyond them the entries used longest ago go first."""

_MAGIC = b"TKCACHE1"
_LENGTHS = struct.Struct("<QQ")  # bytes of the JSON header, bytes of the payload
_CHECKSUM_BYTES = 32
_SUFFIX = ".tkc"
_TEMPORARY = ".tmp"
_ABANDONED = 3600.0  # seconds after which a temporary file has no living writer

_warned: set[Path] = set()


class CacheWarning(UserWarning):
    """The cache folder cannot be used; kernels are assembled every time."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What one file holds: a header that JSON can write, and bytes."""

    header: dict[str, Any]
    payload: bytes


@dataclass(frozen=True, slots=True)
class CacheStats:
    """The cache as it stands: where, how many entries, how many bytes, and the most it may hold."""

    folder: Path
    entries: int
    bytes: int
    limit: int


@dataclass(frozen=True, slots=True)
class CacheFile:
    """An entry's file.

    Attributes
    ----------
    key
        Its name.
    bytes
        Its size.
    used
        When it was last used, seconds since the epoch.
    kernel, target, config
        What it holds, for which chip, and how that was built; None where the file does not say so.
    """

    key: str
    bytes: int
    used: float
    kernel: str | None
    target: str | None
    config: str | None


def entry_key(*parts: str) -> str:
    """Return the SHA-256 of some texts, each with its length, so that no two lists of parts share a key."""
    digest = hashlib.sha256(_MAGIC)
    for part in parts:
        data = part.encode()
        digest.update(struct.pack("<Q", len(data)))
        digest.update(data)
    return digest.hexdigest()


def default_cache() -> DiskCache:
    """Return the cache in `settings.cache_dir`."""
    return DiskCache(settings.cache_dir / "kernels")


class DiskCache:
    """A folder of entries, addressed by `entry_key`.

    Parameters
    ----------
    folder : pathlib.Path
        Made on the first write.
    limit : int
        Bytes the folder may hold.
    """

    def __init__(self, folder: Path, limit: int = CACHE_LIMIT) -> None:
        self.folder = folder
        self.limit = limit

    def get(self, key: str) -> Entry | None:
        """Return the entry of a key; None if there is none, or none that is whole."""
        path = self._path(key)
        try:
            entry = _decode(key, path.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn(error)
            return None
        if entry is not None:
            with contextlib.suppress(OSError):
                os.utime(path)  # the time of last use, by which entries are evicted
        return entry

    def put(self, key: str, entry: Entry) -> None:
        """Write an entry, replacing what is there, and evict others if the folder has grown beyond its limit."""
        temporary = self.folder / f"{key}.{secrets.token_hex(8)}{_TEMPORARY}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            try:
                with temporary.open("xb") as file:
                    file.write(_encode(key, entry))
                    file.flush()
                    os.fsync(file.fileno())
                temporary.replace(self._path(key))
            finally:
                temporary.unlink(missing_ok=True)
            self._evict(keep=self._path(key))
        except OSError as error:
            self._warn(error)

    def stats(self) -> CacheStats:
        """Count the entries and their bytes."""
        sizes = [status.st_size for _, status in self._files(_SUFFIX)]
        return CacheStats(self.folder, len(sizes), sum(sizes), self.limit)

    def entries(self) -> list[CacheFile]:
        """The entries' files, the one used last first; of each only the header is read."""
        files = sorted(self._files(_SUFFIX), key=lambda item: item[1].st_mtime_ns, reverse=True)
        return [
            CacheFile(path.stem, status.st_size, status.st_mtime, *_named(path, ("kernel", "target", "config")))
            for path, status in files
        ]

    def clear(self) -> int:
        """Remove every entry and what interrupted writers left behind; return the number of entries removed."""
        count = 0
        for path, _ in self._files(_SUFFIX):
            path.unlink(missing_ok=True)
            count += 1
        for path, _ in self._files(_TEMPORARY):
            path.unlink(missing_ok=True)
        return count

    def verify(self) -> list[str]:
        """Read every entry, remove the damaged ones and return their keys."""
        damaged = []
        for path, _ in self._files(_SUFFIX):
            with contextlib.suppress(FileNotFoundError):
                if _decode(path.stem, path.read_bytes()) is None:
                    path.unlink(missing_ok=True)
                    damaged.append(path.stem)
        return damaged

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}{_SUFFIX}"

    def _files(self, suffix: str) -> list[tuple[Path, os.stat_result]]:
        """Files of a suffix; a folder of such a name is no entry."""
        found = []
        if self.folder.is_dir():
            for path in self.folder.iterdir():
                if path.suffix == suffix:
                    with contextlib.suppress(FileNotFoundError):  # removed by another process meanwhile
                        status = path.stat()
                        if stat.S_ISREG(status.st_mode):
                            found.append((path, status))
        return found

    def _evict(self, keep: Path) -> None:
        for path, status in self._files(_TEMPORARY):
            if status.st_mtime < time.time() - _ABANDONED:
                path.unlink(missing_ok=True)
        entries = sorted(self._files(_SUFFIX), key=lambda item: item[1].st_mtime_ns)
        excess = sum(status.st_size for _, status in entries) - self.limit
        for path, status in entries:
            if excess <= 0:
                return
            if path != keep:
                path.unlink(missing_ok=True)
                excess -= status.st_size

    def _warn(self, error: OSError) -> None:
        if self.folder not in _warned:
            _warned.add(self.folder)
            warnings.warn(
                f"the kernel cache in {self.folder} cannot be used ({error}); kernels are assembled every time. "
                "Set TILEKIT_CACHE_DIR to a folder that can be written",
                CacheWarning,
                stacklevel=4,
            )


def _encode(key: str, entry: Entry) -> bytes:
    header = json.dumps({"key": key, **entry.header}).encode()
    body = _MAGIC + _LENGTHS.pack(len(header), len(entry.payload)) + header + entry.payload
    return body + hashlib.sha256(body).digest()


def _named(path: Path, names: tuple[str, ...]) -> list[str | None]:
    """Words of a file's header; None where there are none."""
    try:
        with path.open("rb") as file:
            file.seek(len(_MAGIC))
            header_bytes, _ = _LENGTHS.unpack(file.read(_LENGTHS.size))
            header = json.loads(file.read(min(header_bytes, path.stat().st_size)))
        found = [header.get(name) for name in names]
    except (OSError, ValueError, RecursionError, AttributeError, struct.error):
        return [None] * len(names)
    return [word if isinstance(word, str) else None for word in found]


def _decode(key: str, data: bytes) -> Entry | None:
    """Return the entry these bytes hold, or None if a single one of them is wrong or missing."""
    start = len(_MAGIC) + _LENGTHS.size
    body, checksum = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
    if len(body) < start or not body.startswith(_MAGIC) or hashlib.sha256(body).digest() != checksum:
        return None
    header_bytes, payload_bytes = _LENGTHS.unpack_from(body, len(_MAGIC))
    if len(body) != start + header_bytes + payload_bytes:
        return None
    try:
        header = json.loads(body[start : start + header_bytes])
    except (ValueError, RecursionError):
        return None
    if not isinstance(header, dict) or header.pop("key", None) != key:
        return None
    return Entry(header, body[start + header_bytes :])
