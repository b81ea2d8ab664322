"""The best evaluation so far, for keeping its parameters and for stopping early; derived from the log, so that it resumes."""

from collections.abc import Iterable, Mapping
from typing import Any

from lpe.registry import nearest
from lpe.tasks.base import Task


def judged(config: Mapping[str, Any], rows: list[dict]) -> list[dict]:
    """The rows up to the evaluation that a run's result stands for: the best one where it is kept, else the last."""
    step = Best(config, rows).step
    return rows if step is None else [r for r in rows if r["step"] <= step]


class Best:
    """Follows one metric of one view.

    Args:
      config: the group `eval`: best, "VIEW/METRIC" as "full/accuracy", "" for none (a loss is better when lower, all else when
        higher); patience, evaluations without a new best after which training ends, 0 for no end.
      rows: the log so far.
    """

    def __init__(self, config: Mapping[str, Any], rows: Iterable[dict]):
        self.view, _, self.metric = config["best"].partition("/")
        self.patience = config["patience"]
        self.step, self.value, self.since = None, None, 0
        for row in rows:
            self.update(row)

    def update(self, row: dict) -> bool:
        """Whether this row is the best so far; ties keep the earlier one."""
        if row["kind"] != "eval" or row["view"] != self.view:
            return False
        value = -row[self.metric] if self.metric == "loss" else row[self.metric]
        if self.value is not None and value <= self.value:
            self.since += 1
            return False
        self.step, self.value, self.since = row["step"], value, 0
        return True

    @property
    def exhausted(self) -> bool:
        return bool(self.patience) and self.since >= self.patience

    @staticmethod
    def check(config: Mapping[str, Any], task: Task) -> None:
        """Raises ValueError for a metric or view that the run does not evaluate, or patience without a metric."""
        view, _, metric = config["best"].partition("/")
        if not config["best"]:
            if config["patience"]:
                raise ValueError(f"eval.patience={config['patience']} needs eval.best, as '{_example(config, task)}'")
            return
        if view not in config["views"]:
            raise ValueError(
                f"eval.best={config['best']!r}: no view {view!r} in eval.views{nearest(view, list(config['views']))}"
            )
        if metric not in (known := [*task.metrics, "loss"]):
            raise ValueError(f"eval.best={config['best']!r}: no metric {metric!r}{nearest(metric, known)}")


def _example(config: Mapping[str, Any], task: Task) -> str:
    return f"{config['views'][0]}/{task.metrics[0]}"
