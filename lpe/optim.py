"""The optimiser: AdamW with warm-up and decay, clipping, and ordered rules for freezing, weight decay and layer-wise rates."""

import re
from collections.abc import Collection
from typing import NamedTuple

import jax
import numpy as np
import optax

from lpe import rules
from lpe.params import Spec, nest

SCHEDULES = {
    "linear": lambda peak, steps: optax.linear_schedule(peak, 0.0, steps),
    "cosine": lambda peak, steps: optax.cosine_decay_schedule(peak, steps),
    "constant": lambda peak, steps: optax.constant_schedule(peak),
}
FREEZE = ("none", "all_but_positions", "new_rows_only")  # and first_K_layers
ACTIONS = ("train", "freeze", "new_rows")


def schedule(config: dict, steps: int) -> optax.Schedule:
    """Linear warm-up to the peak rate, then the named decay to 0 at the last step."""
    peak, warm = config["learning_rate"], min(config["warmup_steps"], steps)
    after = SCHEDULES[config["schedule"]](peak, max(steps - warm, 1))
    if warm == 0:
        return after
    return optax.join_schedules([optax.linear_schedule(0.0, peak, warm), after], [warm])


class Plan(NamedTuple):
    """What the rules say of each parameter; arrays broadcast against it: one value, one per layer or one per row."""

    train: dict[str, np.ndarray]  # bool
    rate: dict[str, np.ndarray]  # factor of the learning rate
    decay: dict[str, np.ndarray]  # factor of weight_decay


def plan(config: dict, specs: dict[str, Spec], rows: np.ndarray | None = None, fresh: Collection[str] = ()) -> Plan:
    """Applies optim.freeze, optim.decay and optim.layer_decay.

    Args:
      config: freeze, a name of FREEZE; or freeze_rules, ((regular expression, action), …) with actions train, freeze,
        new_rows; decay, ((regular expression, factor), …); layer_decay, the factor from a layer to the one below it: heads
        have rate 1, the last layer layer_decay, embeddings and positions layer_decay^(layers + 1) (Bao et al., arXiv
        2106.08254, BEiT's counting).
      specs: the parameters.
      rows: PositionMethod.rows; new_rows trains those that do not repeat the loaded row of the same place.
      fresh: parameters that no checkpoint brought; the names of FREEZE leave them trained, as a head that never learns is of
        no use.

    Raises:
      ValueError: a parameter without a rule, a freeze rule that decides nothing, or nothing left to train.
    """
    own = config["freeze_rules"]
    if own and config["freeze"] != "none":
        raise ValueError(f"optim.freeze={config['freeze']!r} and optim.freeze_rules are both given; leave one out")
    if own:
        action = rules.assign(own, specs, "optim.freeze_rules", strict=True)
    else:
        action = rules.assign(_named_rules(config["freeze"], fresh, _layers(specs)), specs, "optim.freeze")
    decay = rules.assign(config["decay"], specs, "optim.decay")
    depth = {p: [_depth(q, specs) for q in rules.paths(p, s)] for p, s in specs.items()}
    top = _layers(specs) + 1
    made = Plan(
        {p: _trained(p, s, action[p], rows) for p, s in specs.items()},
        {p: _per_layer(s, [config["layer_decay"] ** (top - d) for d in depth[p]]) for p, s in specs.items()},
        {p: _per_layer(s, decay[p]) for p, s in specs.items()},
    )
    if not any(t.any() for t in made.train.values()):
        said = f"freeze_rules={own!r}" if own else f"freeze={config['freeze']!r}"
        raise ValueError(f"optim.{said} leaves nothing to train: this model has no such parameters")
    return made


def _layers(specs: dict[str, Spec]) -> int:
    return max((s.shape[0] for s in specs.values() if s.axes[:1] == ("layers",)), default=0)


def _named_rules(freeze: str, fresh: Collection[str], layers: int) -> rules.Rules:
    first = [(re.escape(p).replace("position/", r"position/(\d+/)?"), "train") for p in fresh]
    if freeze == "none":
        return [(".*", "train")]
    if freeze == "all_but_positions":
        return [*first, ("position/.*", "train"), (".*", "freeze")]
    if freeze == "new_rows_only":
        return [*first, ("position/table", "new_rows"), (".*", "freeze")]
    count = int(freeze.split("_")[1])
    if count > layers:
        raise ValueError(f"optim.freeze={freeze!r}, but the model has {layers} layers")
    below = "|".join(map(str, range(count)))
    lower = [(f"(layers|position)/({below})/.*", "freeze"), (r"position/\d+/.*", "train")]  # some positions have layers
    return [*first, *lower, ("(embeddings|position)/.*", "freeze"), (".*", "train")]


def _depth(path: str, specs: dict[str, Spec]) -> int:
    """0 for the input, i + 1 for layer i, one more than the last layer for heads."""
    layer = re.match(r"(?:layers|position)/(\d+)/", path)
    if layer:
        return int(layer[1]) + 1
    if path.startswith(("embeddings/", "position/")):
        return 0
    return _layers(specs) + 1


def _per_layer(spec: Spec, values: list) -> np.ndarray:
    """One value, or one per layer with axes to broadcast over the rest of the parameter."""
    if len(set(values)) == 1:
        return np.asarray(values[0])
    return np.asarray(values).reshape(-1, *[1] * (len(spec.shape) - 1))


def _trained(path: str, spec: Spec, actions: list[str], rows: np.ndarray | None) -> np.ndarray:
    if "new_rows" not in actions:
        return _per_layer(spec, [a == "train" for a in actions])
    if rows is None or len(rows) != spec.shape[0]:
        raise ValueError(f"optim.freeze: 'new_rows' is for a position table with rows of its own, not for {path}")
    new = rows != np.arange(len(rows))
    if not new.any():
        raise ValueError(
            "optim.freeze: 'new_rows' finds no new row in position/table, which holds the loaded rows alone; take a position "
            "with materialize=True, as {'name': 'hierarchical', 'max_length': …, 'materialize': True}, or 'random'"
        )
    return new.reshape(-1, *[1] * (len(spec.shape) - 1))


def frozen_layers(made: Plan, specs: dict[str, Spec]) -> int:
    """How many of the lowest layers need no gradient, nor anything below them: the backward pass stops there."""
    stacked = {p for p, s in specs.items() if s.axes[:1] == ("layers",)}
    below = ("embeddings/", "position/")
    if any(t.any() for p, t in made.train.items() if p.startswith(below) and p not in stacked):
        return 0
    if len({specs[p].shape[0] for p in stacked}) > 1:  # positions by layer beside layers that share their weights
        return 0
    stacks = [np.broadcast_to(t.ravel(), specs[p].shape[0]) for p, t in made.train.items() if p in stacked]
    return int(np.logical_and.accumulate(~np.any(stacks, axis=0)).sum())


def make(config: dict, made: Plan, steps: int) -> optax.GradientTransformation:
    """AdamW (Loshchilov & Hutter, arXiv 1711.05101); wholly frozen parameters have no moments and cost no gradient.

    Args:
      config: learning_rate, warmup_steps, schedule, weight_decay, b1, b2, eps, clip_norm (of what is trained).
      made: of `plan`.
      steps: length of the run.
    """
    train, rate, decay = (nest(x) for x in made)
    tx = optax.chain(
        _times(train),
        optax.clip_by_global_norm(config["clip_norm"]),
        optax.scale_by_adam(config["b1"], config["b2"], config["eps"]),
        _decayed(config["weight_decay"], decay),
        _times(jax.tree.map(np.multiply, train, rate)),
        optax.scale_by_learning_rate(schedule(config, steps)),
    )
    labels = jax.tree.map(lambda t: "train" if t.any() else "freeze", train)
    return optax.partition({"train": tx, "freeze": optax.set_to_zero()}, labels)


def _pair(factors, tree):
    """The factors of the parameters that are there: optax masks the frozen ones out of the tree."""
    masked = lambda x: isinstance(x, optax.MaskedNode)  # noqa: E731
    return jax.tree.map(lambda x, f: x if masked(x) else f, tree, factors, is_leaf=masked)


def _times(factors: dict) -> optax.GradientTransformation:
    one = lambda g, f: g if np.all(f == 1) else g * f.astype(g.dtype)  # noqa: E731
    return optax.stateless(lambda g, params: jax.tree.map(one, g, _pair(factors, g)))


def _decayed(weight_decay: float, factors: dict) -> optax.GradientTransformation:
    add = lambda g, p, f: g + (weight_decay * f).astype(g.dtype) * p if f.any() else g  # noqa: E731
    return optax.stateless(lambda g, params: jax.tree.map(add, g, params, _pair(factors, g)))


def init(tx: optax.GradientTransformation, params: dict, shardings: dict, replicated):
    """The optimiser's state; moments are laid out over the devices as their parameters are."""
    shapes = jax.eval_shape(tx.init, params)
    masked = lambda x: isinstance(x, optax.MaskedNode)  # noqa: E731
    where = optax.tree_utils.tree_map_params(
        tx, lambda x, s: x if masked(x) else s, shapes, shardings,
        transform_non_params=lambda _: replicated, is_leaf=masked,
    )  # fmt: skip
    return jax.jit(tx.init, out_shardings=where)(params)


def table(made: Plan, specs: dict[str, Spec], config: dict) -> str:
    """What is trained and how, one line a parameter, for the start of a run."""
    rows = [("parameter", "shape", "trained", "× rate", "weight decay")]
    total = trained = 0
    for path, spec in specs.items():
        count, part = int(np.prod(spec.shape)), np.broadcast_to(made.train[path], spec.shape)
        total, trained = total + count, trained + int(part.sum())
        axis = "layers" if spec.axes[:1] == ("layers",) else "rows"
        share = _span(made.train[path].ravel(), axis)
        rate, decay = _range(made.rate[path], part), _range(config["weight_decay"] * made.decay[path], part)
        rows.append((path, "×".join(map(str, spec.shape)), share, rate, decay))
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([*lines, f"{trained:,} of {total:,} parameters are trained"])


def _span(train: np.ndarray, axis: str) -> str:
    if train.all() or not train.any():
        return "yes" if train.all() else "no"
    at = np.flatnonzero(train)
    if len(at) == at[-1] - at[0] + 1:
        return f"{axis} {at[0]} to {at[-1]}" if len(at) > 1 else f"{axis[:-1]} {at[0]}"
    return f"{len(at)} of {len(train)} {axis}"


def _range(x: np.ndarray, where: np.ndarray) -> str:
    """The least and the greatest value of what is trained."""
    if not where.any():
        return "–"
    x = np.broadcast_to(x, where.shape)[where]
    low, high = f"{x.min():.3g}", f"{x.max():.3g}"
    return low if low == high else f"{low} to {high}"
