"""Settings for the property tests."""

from hypothesis import settings

# Time limits on single examples would fail on a busy machine, not on a wrong layout.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")
