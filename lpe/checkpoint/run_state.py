"""The state of a run on disk, by Orbax: asynchronous, atomic, the last ones kept, and checked when it is read.

Orbax keeps no checksum of array data: one flipped bit reads as another number. So each step carries one of its own.
"""

import logging
from pathlib import Path

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp

notice = logging.getLogger(__name__)
FORMAT = 1  # of a step's folder; raise it when an older lpe would misread what a newer one writes


class RunState:
    """Saves {"params", "opt_state", "rng"} and a small JSON (step, timer) per step. A context: it ends when all is written.

    Args:
      folder: where; made if needed. What an interrupted save left there is removed.
      keep: how many of the last states stay.
    """

    def __init__(self, folder: Path, keep: int):
        options = ocp.CheckpointManagerOptions(max_to_keep=keep, enable_async_checkpointing=True, cleanup_tmp_directories=True)
        self.folder = folder.absolute()
        self._manager = ocp.CheckpointManager(self.folder, options=options)

    def __enter__(self) -> "RunState":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_) -> None:
        try:
            self.close()
        except Exception as e:
            if kind is None:
                raise
            notice.warning("the last save in %s failed too: %s", self.folder, e)  # what ended the run is said first

    def restore(self, like) -> tuple[dict, dict] | None:
        """The last good state, laid out over the devices as `like` is, and its JSON; None when nothing was saved.

        A step that cannot be read is moved aside (N.damaged) with a warning, once an earlier one was read.

        Raises:
          ValueError: a step of a newer lpe or of other arrays than `like`; or steps are there and none can be read.
        """
        bad: dict[int, str] = {}
        for step in sorted(self._manager.all_steps(), reverse=True):
            try:
                got = self._read(step, like)
            except _Unfit:
                raise
            except Exception as e:
                bad[step] = f"{type(e).__name__}: {str(e).strip().splitlines()[0][:200] if str(e).strip() else ''}"
                if jax.process_count() > 1:  # the processes may have seen different things: a person decides
                    raise ValueError(
                        f"{self.folder / str(step)} cannot be read ({bad[step]}); resume once with a single process, which "
                        "goes back to the step before, or move that folder away"
                    ) from e
                continue
            self._move_aside(bad, step)
            return got
        if bad:
            said = "; ".join(f"step {s}: {why}" for s, why in bad.items())
            raise ValueError(
                f"no state in {self.folder} can be read ({said}); to begin again at step 0 move that folder away, or give "
                "another --workdir"
            )
        return None

    def _read(self, step: int, like) -> tuple[dict, dict]:
        meta = self._manager.restore(step, args=ocp.args.Composite(meta=ocp.args.JsonRestore()))["meta"]
        if "format" not in meta:
            raise ValueError("lpe did not write it")
        if meta["format"] > FORMAT:
            raise _Unfit(
                f"{self.folder / str(step)} was written by a newer lpe (format {meta['format']}; this one reads {FORMAT}); "
                "update lpe, or give another --workdir"
            )
        if wrong := _differences(meta["arrays"], _arrays(like)):
            raise _Unfit(
                f"{self.folder / str(step)} holds the state of another model or optimiser: {wrong}; give another --workdir, "
                "or resume with the lpe that wrote it (git_commit in versions.json)"
            )
        abstract = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), like)
        args = ocp.args.Composite(state=ocp.args.StandardRestore(abstract))
        state = self._manager.restore(step, args=args)["state"]
        if int(_checksum(state)) != meta["checksum"]:
            raise ValueError("its arrays are not those that were saved (checksum)")
        return state, meta

    def _move_aside(self, bad: dict[int, str], good: int) -> None:
        for step, why in bad.items():
            names = (f"{step}.damaged{n}" for n in ("", *(f"-{i}" for i in range(2, 1000))))
            aside = next(self.folder / n for n in names if not (self.folder / n).exists())
            (self.folder / str(step)).rename(aside)
            notice.warning("step %d cannot be read (%s); moved to %s, going on from step %d", step, why, aside, good)
        if bad:
            self._manager.reload()

    def save(self, step: int, state: dict, meta: dict, *, wait: bool = False) -> None:
        """Starts to save; the arrays are copied before this returns, the files are written in the background.

        An earlier step is removed once this one is written. An error of the background shows at the next save, or at the
        end; with `wait`, now.
        """
        if self._manager.latest_step() == step:
            return
        meta = {**meta, "format": FORMAT, "checksum": int(_checksum(state)), "arrays": _arrays(state)}
        args = ocp.args.Composite(state=ocp.args.StandardSave(state), meta=ocp.args.JsonSave(meta))
        self._manager.save(step, args=args)
        if wait:
            self._manager.wait_until_finished()

    def cut(self, step: int | None) -> None:
        """Forgets what was saved after a step (None: all of it), as a run that resumes there will make it again.

        Raises:
          ValueError: the step itself is not there.
        """
        there = self._manager.all_steps()
        for later in there:
            if step is None or later > step:
                self._manager.delete(later)
        if step is not None and step not in there:
            raise ValueError(
                f"{self.folder} lacks step {step}, which metrics.jsonl names as the best so far; bring it back, or begin again "
                "in another --workdir"
            )

    def close(self) -> None:
        """Waits for what is being written."""
        self._manager.wait_until_finished()
        self._manager.close()


class _Unfit(ValueError):
    """A step that is whole, but not for this run."""


def _arrays(state) -> dict[str, str]:
    leaves = jax.tree_util.tree_flatten_with_path(state)[0]
    return {jax.tree_util.keystr(path): f"{x.dtype}{list(x.shape)}" for path, x in leaves}


def _differences(saved: dict[str, str], wanted: dict[str, str]) -> str:
    """The first arrays that differ, in words; empty if none does."""
    paths = [p for p in {**wanted, **saved} if saved.get(p) != wanted.get(p)]
    said = [f"{p} is {saved.get(p, 'missing')}, wanted {wanted.get(p, 'none')}" for p in paths[:3]]
    return ", ".join(said) + (f", and {len(paths) - 3} more" if len(paths) > 3 else "")


@jax.jit
def _checksum(state) -> jax.Array:
    """All bits as whole numbers, added modulo 2^32: the same in any order, so on any devices; one flipped bit changes it."""
    words = (jax.lax.bitcast_convert_type(x, f"uint{8 * x.dtype.itemsize}") for x in jax.tree.leaves(state))
    return sum((w.astype(jnp.uint32).sum(dtype=jnp.uint32) for w in words), jnp.uint32(0))
