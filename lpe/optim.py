"""The optimiser: AdamW with warm-up and decay, gradient clipping, and weight decay by ordered rules (optax)."""

import re

import jax
import optax

from lpe.params import Spec, nest

SCHEDULES = {
    "linear": lambda peak, steps: optax.linear_schedule(peak, 0.0, steps),
    "cosine": lambda peak, steps: optax.cosine_decay_schedule(peak, steps),
    "constant": lambda peak, steps: optax.constant_schedule(peak),
}


def schedule(config: dict, steps: int) -> optax.Schedule:
    """Linear warm-up to the peak rate, then the named decay to 0 at the last step."""
    peak, warm = config["learning_rate"], min(config["warmup_steps"], steps)
    after = SCHEDULES[config["schedule"]](peak, max(steps - warm, 1))
    if warm == 0:
        return after
    return optax.join_schedules([optax.linear_schedule(0.0, peak, warm), after], [warm])


def make(config: dict, specs: dict[str, Spec], steps: int) -> optax.GradientTransformation:
    """AdamW (Loshchilov & Hutter, arXiv 1711.05101).

    Args:
      config: learning_rate, warmup_steps, schedule, weight_decay, b1, b2, eps, clip_norm, no_decay (regular expressions; a
        parameter whose whole path matches one is not decayed).
      specs: the parameters.
      steps: length of the run.
    """
    decayed = nest({p: not any(re.fullmatch(rule, p) for rule in config["no_decay"]) for p in specs})
    return optax.chain(
        optax.clip_by_global_norm(config["clip_norm"]),
        optax.adamw(
            schedule(config, steps), config["b1"], config["b2"], config["eps"],
            weight_decay=config["weight_decay"], mask=decayed,
        ),
    )  # fmt: skip


def init(tx: optax.GradientTransformation, params: dict, shardings: dict, replicated):
    """The optimiser's state; moments are laid out over the devices as their parameters are."""
    shapes = jax.eval_shape(tx.init, params)
    where = optax.tree_utils.tree_map_params(tx, lambda _, s: s, shapes, shardings, transform_non_params=lambda _: replicated)
    return jax.jit(tx.init, out_shardings=where)(params)
