"""What an argument of the emulator may be, as its annotation says: checked at the call, with the emulator's errors."""

from __future__ import annotations

from typing import Any, Final

from tilekit.emulator.core.annotations import Annotations, Kind
from tilekit.emulator.core.errors import LaunchError

__all__ = ["check_fields", "checked", "checked_values"]


def _refuse(name: str, given: Any, kind: Kind, nearest: Any) -> LaunchError:
    return LaunchError.argument(name, given, kind.words, nearest)


_annotations: Final = Annotations(_refuse)

check_fields = _annotations.fields
"""Check a dataclass's fields, and put their plain types in their place."""

checked_values = _annotations.values
"""Return arguments of a function in their plain types, after checking them."""

checked = _annotations.call
"""Check the arguments of each call of a function before it is made."""
