"""One run of a config made ready: its settings checked without weights, then model, data, optimiser and devices."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from safetensors.numpy import save_file

from lpe import build, heads, inputs, model, optim, settings, sharding, step, stock, workdir
from lpe.best import Best
from lpe.checkpoint import load
from lpe.data import sources
from lpe.params import flatten
from lpe.registry import nearest
from lpe.tasks.base import Task

log = logging.getLogger(__name__)


class Arm(NamedTuple):
    """One training run, ready to go."""

    config: dict
    model: model.Model
    task: Task
    mesh: jax.sharding.Mesh
    step: Callable  # of lpe.step.make
    state: dict  # params, opt_state, rng, with optim.ema also ema
    batches: Any
    views: dict[str, Any]
    where: Callable[[int], str]  # the place of a training example in the data, for messages

    def save(self, params: dict, folder: Path) -> None:
        """Writes the trained model as a Hugging Face folder; a head that no stock class has goes beside it, with its labels."""
        host = sharding.whole(params)
        if not sharding.leads():
            return
        if extra := flatten({k: v for k, v in host.items() if k not in self.model.params}):
            save_file({k: np.asarray(v) for k, v in extra.items()}, folder.parent / "head.safetensors")
            about = {"task": self.config["task"], "labels": self.task.labels}
            (folder.parent / "head.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
            log.warning("%s: the encoder alone; its head is of no stock class and lies beside it: head.safetensors", folder)
        trained = model.Model({k: host[k] for k in self.model.params}, self.model.recipe, self.model.companions)
        trained.save_pretrained(folder, **{k: self.config["save"][k] for k in ("dtype", "format")})


def named(config: dict) -> list[tuple[str, dict]]:
    """The runs that a config asks for, (name, config) each; one without `arms` is a single run.

    Raises:
      ValueError: two names that give the same folder, or one that gives none, or that no table can show.
    """
    arms = [(n, settings.merged({**config, "arms": ()}, over)) for n, over in config["arms"] or [(config["name"], {})]]
    for name, _ in arms:
        if set(name) & set("|\n\r"):
            raise ValueError(f"name {name!r}: tables show it, so it may hold no | and no line break")
    slugs = [workdir.slug(name) for name, _ in arms]
    if len(set(slugs)) < len(arms) or not all(slugs):
        raise ValueError(f"arms {[n for n, _ in arms]}: each needs a folder of its own, but they give {slugs}; rename them")
    return arms


def check(config: dict) -> None:
    """Builds all that config.json allows to build, without weights; so a bad option stops the run at once."""
    settings.check(config)
    family, cfg, raw = load.read_config(model.find(config["checkpoint"]))
    position = _position(config, family, raw)
    recipe = build.Recipe(family, cfg, (), position, (), config["dtype"], config["remat"], config["chunk_size"])
    net = build.network(recipe._replace(attention=build.attention(_attention(config, recipe, raw))))
    task = build.task(config["task"], net)
    sources.check(config["data"])
    for key, view in [("train.view", config["train"]["view"]), *(("eval.views", v) for v in config["eval"]["views"])]:
        if view not in task.views:
            raise ValueError(f"{key}: no view {view!r}{nearest(view, list(task.views))}")
        limit, length = net.position.max_length, task.views[view].length
        if limit is not None and length > limit:
            raise ValueError(
                f"{key}={view!r} reads inputs of {length} tokens, but position {config['position']} offers {limit}; "
                "raise position.max_length or lower task.length"
            )
    if config["train"]["batch_size"] % config["train"]["accumulate"]:
        t = config["train"]
        raise ValueError(f"train.accumulate={t['accumulate']} does not divide train.batch_size={t['batch_size']}")
    if config["mode"] == "train":
        Best.check(config["eval"], task)
        if config["save"]["dtype"] != "no" and config["save"]["format"] == "stock":
            stock.check(net, (*task.heads, *task.makes))
    sharding.params(sharding.mesh(config["mesh"]), {**net.specs, **task.specs}, config["sharding_rules"])


def _position(config: dict, family: str, raw: dict) -> tuple:
    """The positions of a run: the checkpoint's own, or the config's with what belongs to the weights."""
    own = build.positions(load.position(family, raw, config["checkpoint"]))
    return build.keep_weights(own, build.positions(config["position"])) if config["position"] else own


def _attention(config: dict, recipe: build.Recipe, raw: dict) -> dict:
    """The attention of a run: the config's, else the checkpoint's own, with the global tokens that the task's class has."""
    if config["attention"]:
        return config["attention"]
    plain = recipe._replace(attention=build.attention({"name": "full"}), position=build.positions({"name": "learned"}))
    task = build.task(config["task"], build.network(plain))
    return load.attention(recipe.family, raw, (*task.heads, *task.makes), config["checkpoint"])


def prepare(config: dict, cache: dict[tuple, Any]) -> Arm:
    """Loads the model, lays it out over the devices and opens the data. `cache` keeps what equal arms share."""
    seed, mesh = config["seed"], sharding.mesh(config["mesh"])
    options = {k: config[k] for k in ("dtype", "remat", "chunk_size", "seed", "ignore")}
    family, cfg, raw = load.read_config(model.find(config["checkpoint"]))
    attention = _attention(config, build.Recipe(family, cfg, ()), raw)
    positions = config["position"] or None
    mod = model.from_pretrained(config["checkpoint"], position=positions, attention=attention, **options)
    docs = _once(cache, ("documents", config["data"]), lambda: sources.documents(config["data"]))
    spec = build.with_labels(config["task"], docs, heads.labels(mod))
    task = build.task(spec, build.network(mod.recipe))
    if config["mode"] == "train":
        Best.check(config["eval"], task)  # some metrics depend on the labels
    task.check(mod.tokenizer)
    fitted = heads.fit(mod, task, seed)
    params = fitted.model.params | fitted.extra
    specs = build.network(fitted.model.recipe).specs | task.specs
    fresh = fitted.fresh | _new_positions(fitted.model, _position({**config, "position": {}}, family, raw))
    plan = optim.plan(config["optim"], specs, build.network(mod.recipe).position.rows, fresh)
    _once(cache, ("table", list(specs), config["optim"]), lambda: log.info("%s", optim.table(plan, specs, config["optim"])))
    task = build.task(spec, build.network(mod.recipe, optim.frozen_layers(plan, specs)))
    key = ("examples", config["checkpoint"], spec, config["data"])
    train, heldout = _once(cache, key, lambda: [task.prepare(docs[split], mod.tokenizer) for split in sources.SPLITS])
    where, everywhere = sharding.params(mesh, specs, config["sharding_rules"]), sharding.replicated(mesh)
    tx = optim.make(config["optim"], plan, config["train"]["steps"])
    params = jax.device_put(params, where)
    rng = jax.device_put(jax.random.key_data(jax.random.key(seed)), everywhere)
    state = {"params": params, "opt_state": optim.init(tx, params, where, everywhere), "rng": rng}
    if config["optim"]["ema"]:
        state["ema"] = jax.tree.map(lambda x: x.copy(), params)
    t, e = config["train"], config["eval"]
    rows = sharding.parts(mesh) * t["accumulate"]
    batches = task.dataset(train, mod.tokenizer, t["view"], t["batch_size"], seed=seed, multiple_of=rows)
    if found := len(batches[0]["input_ids"]) % sharding.parts(mesh):
        size, parts = len(batches[0]["input_ids"]), sharding.parts(mesh)
        raise ValueError(
            f"a batch of {size} inputs leaves {found} over on {parts} devices; choose train.batch_size so that it divides"
        )
    views = {v: task.dataset(heldout, mod.tokenizer, v, e["batch_size"], limit=e["examples"]) for v in e["views"]}
    train_step = step.make(task, tx, plan, accumulate=t["accumulate"], ema=config["optim"]["ema"])
    net = build.network(mod.recipe)
    if net.pattern.capacity:
        batches, *seen = (ds.map(lambda b: inputs.check_global(net, b)) for ds in (batches, *views.values()))
        views = dict(zip(views, seen, strict=True))
    return Arm(config, fitted.model, task, mesh, train_step, state, batches, views, train.where)


def _new_positions(mod: model.Model, own: tuple) -> set[str]:
    """Parameters of the position method that the checkpoint, with positions `own`, does not bring: they start from chance."""
    brought = build.network(build.Recipe(mod.recipe.family, mod.config, (), own)).specs
    return {p for p in build.network(mod.recipe).specs if p.startswith("position/") and p not in brought}


def _once(cache: dict[tuple, Any], key: Any, make: Callable[[], Any]) -> Any:
    key = build.freeze(key)
    if key not in cache:
        cache[key] = make()
    return cache[key]
