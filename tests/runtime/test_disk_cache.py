"""The disk cache: whole entries or none, whatever happens to the files or runs beside it."""

from __future__ import annotations

import multiprocessing
import os
import time
import warnings
from pathlib import Path

import pytest

from tilekit.runtime import cache as cache_module
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
