"""What all tests share."""

import os
import signal

from hypothesis import settings

settings.register_profile("pairbus", deadline=None, print_blob=True, derandomize=bool(os.environ.get("CI")))
settings.load_profile("pairbus")

# Tests that interrupt a command work where whoever runs them in the background has SIGINT ignored, too.
signal.signal(signal.SIGINT, signal.default_int_handler)
