"""The state of a run on disk, by Orbax: asynchronous, atomic, the last ones kept."""

from pathlib import Path

import jax
import orbax.checkpoint as ocp


class RunState:
    """Saves {"params", "opt_state", "rng"} and a small JSON (step, timer) per step.

    Args:
      folder: where; made if needed.
      keep: how many of the last states stay.
    """

    def __init__(self, folder: Path, keep: int):
        options = ocp.CheckpointManagerOptions(max_to_keep=keep, enable_async_checkpointing=True)
        self._manager = ocp.CheckpointManager(folder.absolute(), options=options)

    def restore(self, like, step: int | None = None) -> tuple[dict, dict] | None:
        """A saved state, the last one by default, laid out over the devices as `like` is, and its JSON; None without any."""
        step = self._manager.latest_step() if step is None else step
        if step is None:
            return None
        abstract = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), like)
        args = ocp.args.Composite(state=ocp.args.StandardRestore(abstract), meta=ocp.args.JsonRestore())
        got = self._manager.restore(step, args=args)
        return got["state"], got["meta"]

    def save(self, step: int, state: dict, meta: dict) -> None:
        """Starts to save; the arrays are copied before this returns, the files are written in the background."""
        if self._manager.latest_step() == step:
            return
        args = ocp.args.Composite(state=ocp.args.StandardSave(state), meta=ocp.args.JsonSave(meta))
        self._manager.save(step, args=args)

    def cut(self, step: int | None) -> None:
        """Forgets what was saved after a step (None: all of it), as a run that resumes there will make it again."""
        for later in self._manager.all_steps():
            if step is None or later > step:
                self._manager.delete(later)

    def close(self) -> None:
        """Waits for what is being written."""
        self._manager.wait_until_finished()
        self._manager.close()
