"""One run of a config made ready: its settings checked without weights, then model, data, optimiser and devices."""

from typing import Any, NamedTuple

import jax
import optax

from lpe import build, model, optim, settings, sharding, workdir
from lpe.checkpoint import load
from lpe.data import sources
from lpe.registry import nearest
from lpe.tasks.base import Task


class Arm(NamedTuple):
    """One training run, ready to go."""

    config: dict
    model: model.Model
    task: Task
    mesh: jax.sharding.Mesh
    tx: optax.GradientTransformation
    state: dict  # params, opt_state, rng
    batches: Any
    views: dict[str, Any]


def named(config: dict) -> list[tuple[str, dict]]:
    """The runs that a config asks for, (name, config) each; one without `arms` is a single run.

    Raises:
      ValueError: two names that give the same folder, or one that gives none.
    """
    arms = [(n, settings.merged({**config, "arms": ()}, over)) for n, over in config["arms"] or [(config["name"], {})]]
    slugs = [workdir.slug(name) for name, _ in arms]
    if len(set(slugs)) < len(arms) or not all(slugs):
        raise ValueError(f"arms {[n for n, _ in arms]}: each needs a folder of its own, but they give {slugs}; rename them")
    return arms


def check(config: dict) -> None:
    """Builds all that config.json allows to build, without weights; so a bad option stops the run at once."""
    settings.check(config)
    family, cfg, _ = load.read_config(model.find(config["checkpoint"]))
    position, attention = build.freeze(config["position"]), build.freeze(config["attention"])
    net = build.network(build.Recipe(family, cfg, (), position, attention, config["dtype"], config["remat"]))
    task = build.task(config["task"], net)
    sources.check(config["data"]["source"])
    for key, view in [("train.view", config["train"]["view"]), *(("eval.views", v) for v in config["eval"]["views"])]:
        if view not in task.views:
            raise ValueError(f"{key}: no view {view!r}{nearest(view, list(task.views))}")
        limit, length = net.position.max_length, task.views[view].length
        if limit is not None and length > limit:
            raise ValueError(
                f"{key}={view!r} reads inputs of {length} tokens, but position {config['position']} offers {limit}; "
                "raise position.max_length or lower task.length"
            )
    sharding.params(sharding.mesh(config["mesh"]), {**net.specs, **task.specs}, config["sharding_rules"])


def prepare(config: dict, examples: dict[tuple, tuple]) -> Arm:
    """Loads the model, lays it out over the devices and opens the data. `examples` keeps what equal arms share."""
    seed, mesh = config["seed"], sharding.mesh(config["mesh"])
    options = {k: config[k] for k in ("position", "attention", "dtype", "remat", "seed", "ignore")}
    mod = model.from_pretrained(config["checkpoint"], **options)
    net = build.network(mod.recipe)
    task = build.task(config["task"], net)
    mod.require(*task.heads)
    task.check(mod.tokenizer)
    key = build.freeze([config["checkpoint"], config["task"], config["data"]])
    if key not in examples:
        docs = sources.documents(config["data"]["source"], config["data"]["documents"])
        examples[key] = tuple(task.prepare(docs[split], mod.tokenizer) for split in sources.SPLITS)
    train, heldout = examples[key]
    specs = {**net.specs, **task.specs}
    where, everywhere = sharding.params(mesh, specs, config["sharding_rules"]), sharding.replicated(mesh)
    tx = optim.make(config["optim"], specs, config["train"]["steps"])
    params = jax.device_put(mod.params, where)
    rng = jax.device_put(jax.random.key_data(jax.random.key(seed)), everywhere)
    state = {"params": params, "opt_state": optim.init(tx, params, where, everywhere), "rng": rng}
    t, e = config["train"], config["eval"]
    batches = task.dataset(train, mod.tokenizer, t["view"], t["batch_size"], seed=seed)
    views = {v: task.dataset(heldout, mod.tokenizer, v, e["batch_size"], limit=e["examples"]) for v in e["views"]}
    return Arm(config, mod, task, mesh, tx, state, batches, views)
