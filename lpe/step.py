"""One training step as a pure function: gradient (accumulated if asked), optimiser, moving average."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from jax import Array

from lpe.optim import Plan
from lpe.params import nest
from lpe.tasks.base import Task


def make(task: Task, tx: optax.GradientTransformation, plan: Plan, *, accumulate: int = 1, ema: float = 0.0) -> Callable:
    """(state, batch, step) -> (state, {name: (sum, count)}).

    Args:
      task, tx, plan: what is trained, and how.
      accumulate: the batch is worked through in so many parts of equal rows; their gradients are weighted by what each part's
        loss counts, so that the result is that of the whole batch.
      ema: decay of the moving average of the parameters in state["ema"]; 0 for none. It starts from the initial parameters;
        the decay of step t is min(ema, (1 + t) / (10 + t)), so that the start is soon forgotten (tf.train's schedule).
    """
    grad = jax.value_and_grad(task.loss, has_aux=True)
    train = nest(plan.train)

    def one(params: dict, batch: dict[str, Array], key: Array):
        (_, metrics), grads = grad(params, batch, key)
        count = jnp.asarray(metrics["loss"][1], jnp.float32)
        return jax.tree.map(lambda g: g * count, grads), metrics

    def accumulated(params: dict, batch: dict[str, Array], key: Array):
        # rows i, i + parts, … form part i, so that every device keeps its own rows
        parts = jax.tree.map(lambda x: x.reshape(-1, accumulate, *x.shape[1:]).swapaxes(0, 1), batch)

        def body(total, part):
            i, rows = part
            return jax.tree.map(jnp.add, total, one(params, rows, jax.random.fold_in(key, i))), None

        shapes = jax.eval_shape(one, params, jax.tree.map(lambda x: x[0], parts), key)
        start = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
        (grads, metrics), _ = jax.lax.scan(body, start, (jnp.arange(accumulate), parts))
        return jax.tree.map(lambda g: g / jnp.maximum(metrics["loss"][1], 1), grads), metrics

    def step(state: dict, batch: dict[str, Array], number: Array) -> tuple[dict, dict]:
        key = jax.random.fold_in(jax.random.wrap_key_data(state["rng"]), number)
        if accumulate == 1:
            (_, metrics), grads = grad(state["params"], batch, key)
        else:
            grads, metrics = accumulated(state["params"], batch, key)
        updates, opt_state = tx.update(grads, state["opt_state"], state["params"])
        params = optax.apply_updates(state["params"], updates)
        kept = jax.tree.map(lambda g, t: g * t.astype(g.dtype) if t.any() else jnp.zeros(()), grads, train)
        new = {**state, "params": params, "opt_state": opt_state}
        if ema:
            decay = jnp.minimum(ema, (1 + number) / (10 + number))
            new["ema"] = jax.tree.map(lambda old, p: old + (1 - decay) * (p - old), state["ema"], params)
        return new, {**metrics, "grad_norm": (optax.tree.norm(kept), 1)}

    return step
