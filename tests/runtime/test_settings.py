"""Settings: three doors, their precedence, and what is refused."""

from __future__ import annotations

import math
import stat
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from tilekit.errors import ArgumentError
from tilekit.settings import Settings, settings


def test_default_then_environment_then_attribute_then_override(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each door wins over the one before it, and closes again."""
    own = Settings()
    monkeypatch.delenv("TILEKIT_EMULATOR_LIMIT", raising=False)
    assert own.emulator_limit == 120.0
    monkeypatch.setenv("TILEKIT_EMULATOR_LIMIT", "30")
    assert own.emulator_limit == 30.0
    own.emulator_limit = 40
    assert own.emulator_limit == 40.0
    with own.override(emulator_limit=50):
        with own.override(emulator_limit=math.inf):
            assert own.emulator_limit == math.inf
        assert own.emulator_limit == 50.0
    assert own.emulator_limit == 40.0
    del own.emulator_limit
    assert own.emulator_limit == 30.0


def test_override_is_local_to_its_thread() -> None:
    """Another thread does not see an override block."""
    seen: list[float] = []
    with settings.override(emulator_limit=7):
        thread = threading.Thread(target=lambda: seen.append(settings.emulator_limit))
        thread.start()
        thread.join()
        assert settings.emulator_limit == 7.0
    assert seen == [120.0]


def test_override_closes_after_an_exception() -> None:
    """A block that raises leaves no override behind."""
    with pytest.raises(KeyError), settings.override(emulator_limit=7):
        raise KeyError
    assert settings.emulator_limit == 120.0


def test_describe_names_the_source_of_each_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows doctor prints say which door a value came through."""
    monkeypatch.setenv("TILEKIT_CACHE_DIR", str(tmp_path))
    with settings.override(emulator_limit=9):
        rows = {row.name: row for row in settings.describe()}
    assert (rows["cache_dir"].source, rows["cache_dir"].value) == ("environment", tmp_path)
    assert (rows["emulator_limit"].source, rows["emulator_limit"].value) == ("override", 9.0)
    assert rows["ptxas"].environment == "TILEKIT_PTXAS"


@pytest.mark.parametrize("bad", [0, -1, "soon", math.nan, True, None])
def test_emulator_limit_refuses_what_is_no_duration(bad: object) -> None:
    """A limit that is not a positive number is refused before the block is entered."""
    with pytest.raises(ArgumentError, match="emulator_limit"), settings.override(emulator_limit=bad):
        pass


def test_unknown_setting_names_the_nearest() -> None:
    """A misspelt setting is an error with the right spelling in it, through every door."""
    with pytest.raises(ArgumentError, match="emulator_limit"), settings.override(emulater_limit=1):
        pass
    with pytest.raises(ArgumentError, match="cache_dir"):
        settings.cachedir = "x"


def test_ptxas_must_be_executable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ptxas path that is no program is refused, also from the environment, naming the variable."""
    plain = tmp_path / "ptxas"
    plain.write_text("no program")
    monkeypatch.setenv("TILEKIT_PTXAS", str(plain))
    with pytest.raises(ArgumentError, match="TILEKIT_PTXAS"):
        _ = settings.ptxas
    with settings.override(ptxas=sys.executable):
        assert settings.ptxas == Path(sys.executable)
    with settings.override(ptxas=None):
        assert settings.ptxas is None


def test_a_process_without_a_home_has_a_folder_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A user whom the system does not know, as in containers, gets one that lasts as long as the process."""
    for name in ("HOME", "XDG_CACHE_HOME", "TILEKIT_CACHE_DIR", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder_of_process = sys.modules["tilekit.settings"]._folder_of_process
    folder_of_process.cache_clear()
    found = settings.cache_dir
    assert found.is_relative_to(tmp_path)
    assert found == settings.cache_dir
    assert stat.S_IMODE(found.parent.stat().st_mode) & 0o077 == 0
    folder_of_process.cache_clear()


def test_a_folder_of_an_unknown_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """A path that begins with such a user's home is refused as no path of a folder is."""
    monkeypatch.setenv("TILEKIT_CACHE_DIR", "~nosuchuser/cache")
    with pytest.raises(ArgumentError, match="TILEKIT_CACHE_DIR: given '~nosuchuser/cache'"):
        _ = settings.cache_dir
