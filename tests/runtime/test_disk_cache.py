"""The disk cache: whole entries or none, whatever happens to the files or runs beside it."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import signal
import struct
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import pytest

from tilekit.runtime import cache as cache_module
from tilekit.runtime.assembler import assemble
from tilekit.runtime.cache import CacheWarning, DiskCache, Entry, default_cache, entry_key

KEY = entry_key("text", "sm_90a")


def write_and_read(folder: str, seconds: float) -> int:
    """Replace and read one entry as fast as possible; count the reads that saw no whole entry."""
    own = DiskCache(Path(folder))
    wrong, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        size = time.monotonic_ns() % 5000
        own.put(KEY, Entry({"size": size}, bytes(size)))
        entry = own.get(KEY)
        wrong += entry is None or len(entry.payload) != entry.header["size"]
    return wrong


def test_entry_comes_back_as_it_was_put(tmp_path: Path) -> None:
    """Header and payload survive the round trip; an unknown key is a miss."""
    own = DiskCache(tmp_path / "deep" / "folder")
    assert own.get(KEY) is None
    entry = Entry({"log": "ptxas info\n", "n": 3}, bytes(range(256)))
    own.put(KEY, entry)
    assert own.get(KEY) == entry
    assert [path.suffix for path in own.folder.iterdir()] == [".tkc"]


def test_key_depends_on_every_part_and_its_border() -> None:
    """Texts that only concatenate alike have different keys."""
    assert len({entry_key("ab", "c"), entry_key("a", "bc"), entry_key("abc"), entry_key("abc", "")}) == 4


@pytest.mark.parametrize("damage", ["truncate", "empty", "flip header", "flip payload", "flip checksum", "append"])
def test_damaged_entry_is_a_miss_and_is_replaced(tmp_path: Path, damage: str) -> None:
    """One wrong or missing byte anywhere makes a miss, found by verify, and the next put mends it."""
    own = DiskCache(tmp_path)
    own.put(KEY, Entry({"log": "text"}, b"payload"))
    (path,) = tmp_path.glob("*.tkc")
    data = bytearray(path.read_bytes())
    match damage:
        case "truncate":
            del data[-1]
        case "empty":
            data.clear()
        case "append":
            data.append(0)
        case _:
            position = {"flip header": 30, "flip payload": -34, "flip checksum": -1}[damage]
            data[position] ^= 1
    path.write_bytes(data)
    assert own.get(KEY) is None
    own.put(KEY, Entry({"log": "new"}, b"payload"))
    assert own.get(KEY) == Entry({"log": "new"}, b"payload")
    path.write_bytes(data)
    assert own.verify() == [KEY]
    assert own.stats().entries == 0


def test_renamed_entry_is_not_taken_for_another(tmp_path: Path) -> None:
    """A whole file under a wrong name is a miss: the key is inside as well."""
    own = DiskCache(tmp_path)
    own.put(KEY, Entry({}, b"payload"))
    other = entry_key("other")
    (tmp_path / f"{KEY}.tkc").rename(tmp_path / f"{other}.tkc")
    assert own.get(other) is None


def test_two_processes_never_see_half_an_entry(tmp_path: Path) -> None:
    """Writers and readers of the same key in two processes only ever read whole entries."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(2) as pool:
        assert pool.starmap(write_and_read, [(str(tmp_path), 0.7)] * 2) == [0, 0]
    assert [path.suffix for path in tmp_path.iterdir()] == [".tkc"]


def test_unwritable_folder_warns_once_and_works_without(tmp_path: Path) -> None:
    """Where the folder cannot be made, puts and gets do nothing, after a single warning."""
    (tmp_path / "file").write_text("in the way")
    own = DiskCache(tmp_path / "file" / "kernels")
    with pytest.warns(CacheWarning, match="TILEKIT_CACHE_DIR"):
        own.put(KEY, Entry({}, b""))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        own.put(KEY, Entry({}, b""))
        assert DiskCache(own.folder).get(KEY) is None
    assert own.stats().entries == own.clear() == 0


def test_entries_used_longest_ago_go_first(tmp_path: Path) -> None:
    """Beyond the limit the least recently used entries are evicted, and a read counts as use."""
    own = DiskCache(tmp_path, limit=3500)
    keys = [entry_key(str(number)) for number in range(4)]
    for age, key in enumerate(keys[:3]):
        own.put(key, Entry({}, bytes(1000)))
        os.utime(tmp_path / f"{key}.tkc", (age + 1, age + 1))
    assert own.get(keys[0]) is not None  # now the most recently used
    own.put(keys[3], Entry({}, bytes(1000)))
    assert [own.get(key) is not None for key in keys] == [True, False, True, True]
    assert own.stats().bytes <= own.limit


def test_newest_entry_stays_even_when_it_alone_is_too_large(tmp_path: Path) -> None:
    """An entry above the whole limit is kept until the next one, so that a process finds what it just built."""
    own = DiskCache(tmp_path, limit=10)
    own.put(KEY, Entry({}, bytes(1000)))
    assert own.get(KEY) is not None


def test_a_folder_with_the_name_of_an_entry_is_left_alone(tmp_path: Path) -> None:
    """It is nobody's entry: it is not counted, read or removed, and entries beside it are."""
    own = DiskCache(tmp_path)
    own.put(KEY, Entry({}, b""))
    for name in ("kept.tkc", "kept.tmp"):
        (tmp_path / name).mkdir()
    assert own.verify() == []
    assert own.stats().entries == len(own.entries()) == own.clear() == 1
    assert {path.name for path in tmp_path.iterdir()} == {"kept.tkc", "kept.tmp"}


def test_files_of_dead_writers_are_removed(tmp_path: Path) -> None:
    """A temporary file an hour old has no living writer: the next put removes it, but not a fresh one."""
    own = DiskCache(tmp_path)
    for name, age in (("old.tmp", 2 * 3600), ("young.tmp", 0)):
        (tmp_path / name).write_bytes(b"half")
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    own.put(KEY, Entry({}, b""))
    assert {path.name for path in tmp_path.glob("*.tmp")} == {"young.tmp"}
    assert own.clear() == 1
    assert list(tmp_path.iterdir()) == []


def test_default_cache_follows_the_settings(own_cache: Path) -> None:
    """The default cache lies in `settings.cache_dir`, with the documented limit."""
    stats = default_cache().stats()
    assert stats.folder == own_cache / "kernels"
    assert stats.limit == cache_module.CACHE_LIMIT == 512 << 20


HEADERS = (
    b"",
    b"{",
    b"[]",
    b"null",
    b"7",
    b'"text"',
    b"\xff\xfe",
    b"[" * 100_000,
    b"{}",
    b'{"key": 7}',
    b'{"key": null}',
)


@pytest.mark.parametrize("header", HEADERS, ids=lambda header: repr(header[:12]))
def test_a_whole_entry_that_cannot_be_read_is_a_miss_and_is_replaced(tmp_path: Path, header: bytes) -> None:
    """A checksum says that nothing changed since an entry was written, and not that it was written rightly."""
    cache = DiskCache(tmp_path)
    key = entry_key("a")
    cache.put(key, Entry({"log": "x"}, b"payload"))
    (path,) = tmp_path.glob("*.tkc")
    body = b"TKCACHE1" + struct.pack("<QQ", len(header), 0) + header
    path.write_bytes(body + hashlib.sha256(body).digest())
    assert cache.get(key) is None
    assert cache.verify() == [key]
    cache.put(key, Entry({"log": "y"}, b"again"))
    assert cache.get(key) == Entry({"log": "y"}, b"again")


@pytest.mark.parametrize("header", [{}, {"log": None}, {"log": 7}, {"target": "sm_90a"}], ids=str)
def test_an_entry_without_a_log_is_assembled_again(own_cache: Path, small_kernel: str, header: dict[str, Any]) -> None:
    """An entry that says too little is replaced by one that says all."""
    first = assemble(small_kernel, "sm_90a", kernel_name="small")
    (path,) = own_cache.rglob("*.tkc")
    default_cache().put(path.stem, Entry(header, b"nothing"))
    again = assemble(small_kernel, "sm_90a", kernel_name="small")
    assert again.image == first.image
    found = default_cache().get(path.stem)
    assert found is not None
    assert found.payload == first.image


def test_a_killed_assembler_leaves_nothing(tmp_path: Path, small_kernel: str) -> None:
    """Whenever the process is killed, no file and no folder of its stays in the temporary directory."""
    script = (
        "import os, signal, subprocess, sys; from pathlib import Path\n"
        "from tilekit.runtime import assembler\n"
        "run = subprocess.run\n"
        "def kill(command, **options):\n"
        "    answer = run(command, **options)\n"
        "    return os.kill(os.getpid(), signal.SIGKILL) if 'pass_fds' in options else answer\n"
        "subprocess.run = kill\n"
        "assembler.assemble(Path(sys.argv[1]).read_text(), 'sm_90a', kernel_name='small')\n"
    )
    (tmp_path / "temporary").mkdir()
    (tmp_path / "small.ptx").write_text(small_kernel)
    places = {"TMPDIR": str(tmp_path / "temporary"), "TILEKIT_CACHE_DIR": str(tmp_path / "cache")}
    environment = os.environ | places | {"PYTHONPATH": str(Path(__file__).parents[2])}
    ended = subprocess.run([sys.executable, "-c", script, str(tmp_path / "small.ptx")], env=environment, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert not list((tmp_path / "temporary").iterdir())
