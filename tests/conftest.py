"""What all tests share."""

import os

from hypothesis import settings

settings.register_profile("pairbus", deadline=None, print_blob=True, derandomize=bool(os.environ.get("CI")))
settings.load_profile("pairbus")
