"""Settings of all tests."""

from hypothesis import settings

# on a busy machine the time of a single example says nothing
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")
