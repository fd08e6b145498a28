"""Settings: one typed object with three doors (environment variable, attribute, ``with settings.override(...)``).

The innermost open door wins: an `override` block, then an assigned attribute, then the environment variable, then the
default. An `override` is local to its thread or task; an assigned attribute holds for the whole process.
"""

from __future__ import annotations

import atexit
import difflib
import math
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Generic, TypeVar

from tilekit.errors import ArgumentError

_Value = TypeVar("_Value")
_Given = TypeVar("_Given")

_overrides: ContextVar[dict[str, object] | None] = ContextVar("tilekit_settings", default=None)


def _user_cache() -> Path:
    """Where programs keep what they can make again (XDG Base Directory, Known Folders, Apple's guidelines)."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def _default_cache() -> Path:
    try:
        return _user_cache() / "tilekit"
    except RuntimeError:  # of a user whom the system does not know, as in containers
        return _folder_of_process() / "tilekit"


@cache
def _folder_of_process() -> Path:
    """A folder that no other user can write to, and that lasts as long as the process."""
    folder = tempfile.mkdtemp(prefix="tilekit-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting as `Settings.describe` lists it: its value, and which door it came through."""

    name: str
    value: object
    source: str
    environment: str
    about: str


class _Setting(Generic[_Value, _Given]):
    """A descriptor: how one setting is found, checked and assigned."""

    def __init__(
        self, environment: str, default: Callable[[], _Value], parse: Callable[[str, object], _Value], about: str
    ) -> None:
        self.environment = environment
        self.default = default
        self.parse = parse
        self.about = about
        self.__doc__ = f"{about[0].upper()}{about[1:]}."

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Settings, owner: type | None = None) -> _Value:
        return self.find(instance)[0]

    def __set__(self, instance: Settings, value: _Given) -> None:
        instance._assigned[self.name] = self.parse(self.name, value)

    def __delete__(self, instance: Settings) -> None:
        instance._assigned.pop(self.name, None)

    def find(self, instance: Settings) -> tuple[_Value, str]:
        """Return the value in force, and the door it came through."""
        value: Any
        for source, values in (("override", _overrides.get() or {}), ("attribute", instance._assigned)):
            if self.name in values:
                value = values[self.name]
                return value, source
        text = os.environ.get(self.environment)
        if text:
            return self.parse(self.environment, text), "environment"
        return self.default(), "default"


def _folder(name: str, value: object) -> Path:
    legal = "the path of a folder"
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        raise ArgumentError.of(name, value, legal=legal)
    try:
        return Path(os.fspath(value)).expanduser()
    except RuntimeError:  # it begins with the home of a user whom the system does not know
        raise ArgumentError.of(name, value, legal=legal) from None


def _program(name: str, value: object) -> Path | None:
    if value is None:
        return None
    if not isinstance(value, str | os.PathLike):
        raise ArgumentError.of(name, value, legal="the path of a ptxas executable, or None to search for one")
    try:
        path = Path(os.fspath(value)).expanduser()
        if path.is_file() and os.access(path, os.X_OK):
            return path
    except Exception:  # a path that no file system takes, or an object that is none
        pass
    raise ArgumentError.of(name, str(value), legal="the path of an executable file, or None to search for one")


def _seconds(name: str, value: object) -> float:
    legal = "a number of seconds above 0; inf for no limit"
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        raise ArgumentError.of(name, value, legal=legal)
    try:
        seconds = float(value)
    except (ValueError, OverflowError):
        raise ArgumentError.of(name, value, legal=legal) from None
    if math.isnan(seconds) or seconds <= 0:
        raise ArgumentError.of(name, value, legal=legal, nearest=1.0)
    return seconds


TUNING_OFF, FIRST_CALL = "off", "first call"


def _tuning(name: str, value: object) -> str:
    if isinstance(value, str) and value in (TUNING_OFF, FIRST_CALL):
        return value
    raise ArgumentError.of(name, value, legal=f"{TUNING_OFF!r} or {FIRST_CALL!r}", nearest=FIRST_CALL)


class Settings:
    """The process's settings; use the one instance `tilekit.settings.settings`.

    Attributes
    ----------
    cache_dir : pathlib.Path
        Folder of assembled kernels (``TILEKIT_CACHE_DIR``; default: the platform's cache folder for tilekit).
    ptxas : pathlib.Path or None
        The ptxas to assemble with (``TILEKIT_PTXAS``); None searches the nvidia wheels, CUDA_HOME and PATH.
    emulator_limit : float
        Longest estimated emulator run that starts without being asked to, in seconds (``TILEKIT_EMULATOR_LIMIT``).
    tuning : str
        ``"first call"``: where `tilekit tune` has not looked, the first call of each shape on a GPU times the
        best few configs by the model, which takes some seconds, and keeps the times (``TILEKIT_TUNING``; default:
        ``"off"``).

    Raises
    ------
    ArgumentError
        On an unknown name or a value that is not legal, when it is set, or read from the environment.
    """

    cache_dir: _Setting[Path, str | os.PathLike[str]] = _Setting(
        "TILEKIT_CACHE_DIR",
        default=_default_cache,
        parse=_folder,
        about="folder of assembled kernels",
    )
    ptxas: _Setting[Path | None, str | os.PathLike[str] | None] = _Setting(
        "TILEKIT_PTXAS",
        default=lambda: None,
        parse=_program,
        about="the ptxas to assemble with; None searches the nvidia wheels, CUDA_HOME and PATH",
    )
    emulator_limit: _Setting[float, float] = _Setting(
        "TILEKIT_EMULATOR_LIMIT",
        default=lambda: 120.0,
        parse=_seconds,
        about="longest estimated emulator run that starts without being asked to, in seconds",
    )

    tuning: _Setting[str, str] = _Setting(
        "TILEKIT_TUNING",
        default=lambda: TUNING_OFF,
        parse=_tuning,
        about="whether the first call of a shape on a GPU times configs: off, or first call",
    )

    def __init__(self) -> None:
        object.__setattr__(self, "_assigned", {})

    _assigned: dict[str, object]

    def __setattr__(self, name: str, value: object) -> None:
        _setting(name).__set__(self, value)

    @contextmanager
    def override(self, **values: object) -> Iterator[Settings]:
        """Hold other values inside a ``with`` block, for this thread or task only.

        Parameters
        ----------
        **values
            Settings by name, e.g. ``emulator_limit=600``.

        Raises
        ------
        ArgumentError
            Before the block is entered, for an unknown name or a value that is not legal.
        """
        parsed = {name: _setting(name).parse(name, value) for name, value in values.items()}
        token = _overrides.set({**(_overrides.get() or {}), **parsed})
        try:
            yield self
        finally:
            _overrides.reset(token)

    def describe(self) -> list[SettingRow]:
        """List every setting with its value and where the value came from, for ``tilekit doctor``."""
        return [SettingRow(s.name, *s.find(self), s.environment, s.about) for s in _all_settings().values()]

    def __repr__(self) -> str:
        return f"Settings({', '.join(f'{row.name}={row.value!r}' for row in self.describe())})"


def _all_settings() -> dict[str, _Setting[Any, Any]]:
    return {name: entry for name, entry in vars(Settings).items() if isinstance(entry, _Setting)}


def _setting(name: str) -> _Setting[Any, Any]:
    known = _all_settings()
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        raise ArgumentError.of("setting", name, legal=", ".join(known), nearest=close[0] if close else None)
    return known[name]


settings = Settings()
