"""Seconds spent in training steps alone: compilation, evaluation and saving are left out. Saved with the run."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Timer:
    """Runs between `start` and `lap`; `seconds` is the total of all laps, also of earlier processes.

    waited: seconds of the running lap that went into waiting for input.
    """

    def __init__(self, seconds: float = 0.0, clock: Callable[[], float] = time.perf_counter):
        self.seconds, self.waited = seconds, 0.0
        self._clock, self._started = clock, None

    def start(self) -> None:
        """Starts unless it is running."""
        if self._started is None:
            self._started, self.waited = self._clock(), 0.0

    def waiting(self, get: Callable[[], T]) -> T:
        """The result of `get`, whose time counts as waiting."""
        began = self._clock()
        try:
            return get()
        finally:
            self.waited += self._clock() - began

    def lap(self, count: bool = True) -> float:
        """Stops; returns the seconds since `start` and, with `count`, adds them to the total."""
        if self._started is None:
            return 0.0
        passed, self._started = self._clock() - self._started, None
        self.seconds += passed if count else 0.0
        return passed
