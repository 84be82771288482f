"""For all tests."""

from __future__ import annotations

import signal
import threading

if threading.current_thread() is threading.main_thread():
    # tests that run in the background ignore SIGINT, and so would the programs that they start and stop
    signal.signal(signal.SIGINT, signal.default_int_handler)
