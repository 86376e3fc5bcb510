"""Waiting without polling: threads that follow a watch wake the thread that waits for what they saw."""
import threading
import time

CHANGED = threading.Condition()
# Pause before the next look at what no thread follows, in seconds.
PAUSE = 0.05


def tell():
    """Wakes every waiter; call it after a change."""
    with CHANGED:
        CHANGED.notify_all()


def until(limit, check):
    """Returns the first answer of `check` that is true, None after `limit` seconds."""
    end = time.monotonic() + limit
    # Under the lock no change can come between a look and the wait for the next one.
    with CHANGED:
        while not (got := check()):
            left = end - time.monotonic()
            if left <= 0:
                return None
            CHANGED.wait(min(left, PAUSE))
        return got
