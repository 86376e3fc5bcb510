"""Ends a run on a signal in an orderly way: what it started is stopped and unmounted first."""
import signal

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def catch():
    """From now on the first signal raises KeyboardInterrupt; later ones do not disturb the clean-up."""
    for number in SIGNALS:
        signal.signal(number, interrupt)


def interrupt(_number, _frame):
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt
