"""Property tests here take as long as the machine lets them: a busy one is no failure."""

from hypothesis import settings

settings.register_profile("no_deadline", deadline=None)
settings.load_profile("no_deadline")
