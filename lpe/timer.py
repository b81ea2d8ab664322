"""Seconds spent in training steps alone: compilation, evaluation and saving are left out. Saved with the run."""

import time
from collections.abc import Callable


class Timer:
    """Runs between `start` and `lap`; `seconds` is the total of all laps, also of earlier processes."""

    def __init__(self, seconds: float = 0.0, clock: Callable[[], float] = time.perf_counter):
        self.seconds = seconds
        self._clock, self._started = clock, None

    def start(self) -> None:
        """Starts unless it is running."""
        if self._started is None:
            self._started = self._clock()

    def lap(self, count: bool = True) -> float:
        """Stops; returns the seconds since `start` and, with `count`, adds them to the total."""
        if self._started is None:
            return 0.0
        passed, self._started = self._clock() - self._started, None
        self.seconds += passed if count else 0.0
        return passed
