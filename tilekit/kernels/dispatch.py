"""Which kernel computes a call: each family that reads such calls is asked in turn."""

from __future__ import annotations

import logging
from typing import Any

from tilekit.errors import ArgumentError
from tilekit.kernels.family import Declined, Family, Selection, TunedConfigs
from tilekit.kernels.registry import families

_log = logging.getLogger(__name__)


def select(arguments: Any, tuned: TunedConfigs | None = None, family: str | None = None) -> Selection:
    """Return the kernel for a call, of the first family that takes it.

    Parameters
    ----------
    arguments
        The call.
    tuned
        Where configs that tuning found are looked up, if anywhere.
    family
        The only family to ask.

    Raises
    ------
    ArgumentError
        What a family raises for a call that is its own and not legal; ``TK-API-005`` where all decline, with their
        reasons.
    ConfigError
        For a config that breaks a rule.
    """
    reasons = []
    for one in families().values():
        if one.arguments is type(arguments) and family in (None, one.name):
            found = offer(one, arguments, tuned)
            if isinstance(found, Selection):
                _log.info("%s of %s: %s", one.name, arguments.target.name, found.kernel.config)
                return found
            _log.debug("%s declines: %s", one.name, found.reason)
            reasons.append(f"{one.name}: {found.reason}")
    raise ArgumentError(f"no kernel family takes this call: {'; '.join(reasons) or family}", code="TK-API-005")


def offer(family: Family, arguments: Any, tuned: TunedConfigs | None = None) -> Selection | Declined:
    """Ask one family."""
    if arguments.target.name not in family.targets:
        built, nearest = ", ".join(family.targets), arguments.elsewhere and f"; nearest: {arguments.elsewhere}"
        return Declined(f"it is built for {built}, and the call is for {arguments.target.name}{nearest}")
    return family.select(arguments, tuned)


def family_of(spec: Any) -> Family:
    """Return the family whose kernels a spec describes.

    Raises
    ------
    ArgumentError
        For what is no family's spec.
    """
    known = families().values()
    described = [one for kind in type(spec).__mro__ for one in known if one.spec is kind]
    if not described:
        legal = " or ".join(f"a {name}" for name in dict.fromkeys(one.spec.__name__ for one in known))
        raise ArgumentError.of("spec", spec, legal=legal)
    grouped = getattr(spec, "groups", None) is not None
    return next(one for one in described if one.grouped == grouped)
