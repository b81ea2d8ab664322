"""A polite stop: SIGTERM and Ctrl-C ask the loop to save and end; a second one ends at once."""

import signal
from types import FrameType


class Stop:
    """A context: within it, the first SIGTERM or SIGINT sets `requested`, and the next one has its usual effect."""

    def __init__(self):
        self.requested = False
        self._usual: dict[int, object] = {}

    def __enter__(self) -> "Stop":
        for number in (signal.SIGTERM, signal.SIGINT):
            try:
                self._usual[number] = signal.signal(number, self._ask)
            except ValueError:  # only the main thread may; a run in another thread keeps the usual handlers
                break
        return self

    def __exit__(self, *exception) -> None:
        for number, handler in self._usual.items():
            signal.signal(number, handler)  # pyright: ignore[reportArgumentType]

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        self.__exit__()
