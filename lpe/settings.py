"""What a config may say: every key, its type and range. Checked before anything is loaded or compiled."""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from lpe.optim import ACTIONS, FREEZE, SCHEDULES
from lpe.registry import nearest, options


class Rule(NamedTuple):
    """What a value must be, in words for the message and as a test."""

    allowed: str
    holds: Callable[[Any], bool]
    names: tuple[str, ...] = ()


def _int(low: int) -> Rule:
    return Rule(f"whole numbers from {low}", lambda v: isinstance(v, int) and not isinstance(v, bool) and v >= low)


def _number(low: float, below: float = float("inf"), *, above: bool = False) -> Rule:
    text = f"numbers {'above' if above else 'from'} {low}" + ("" if below == float("inf") else f", below {below}")
    return Rule(
        text,
        lambda v: isinstance(v, (int, float)) and not isinstance(v, bool) and (low < v if above else low <= v) and v < below,
    )


def _one_of(*values: str) -> Rule:
    return Rule("one of " + ", ".join(values), lambda v: v in values, values)


def _compiles(pattern: Any) -> bool:
    try:
        re.compile(pattern)
    except (re.error, TypeError):
        return False
    return True


TEXT = Rule("a text that is not empty", lambda v: isinstance(v, str) and bool(v))
ANY_TEXT = Rule("a text", lambda v: isinstance(v, str))
METHOD = Rule("{'name': ..., options}", lambda v: isinstance(v, Mapping) and isinstance(v.get("name"), str))
OWN_OR_METHOD = Rule("{'name': ..., options}, or {} for the checkpoint's own", lambda v: METHOD.holds(v) or v == {})
METHODS = Rule(
    "{'name': ..., options} or a list of such",
    lambda v: METHOD.holds(v) or (isinstance(v, (list, tuple)) and bool(v) and all(METHOD.holds(x) for x in v)),
)
OWN_OR_METHODS = Rule(f"{METHODS.allowed}, or {{}} for the checkpoint's own", lambda v: METHODS.holds(v) or v == {})
NAMES = Rule("a list of names", lambda v: isinstance(v, (list, tuple)) and all(isinstance(x, str) for x in v))
YES_NO = Rule("True, False", lambda v: isinstance(v, bool))
SIZES = Rule(
    "{name: size}, sizes from 1, or -1 for what remains",
    lambda v: isinstance(v, Mapping) and all(type(x) is int and (x > 0 or x == -1) for x in v.values()),
)


def _is_arm(a: Any) -> bool:
    return isinstance(a, (list, tuple)) and len(a) == 2 and isinstance(a[0], str) and isinstance(a[1], Mapping)


def _is_rule(r: Any, value: Callable[[Any], bool]) -> bool:
    return isinstance(r, (list, tuple)) and len(r) == 2 and _compiles(r[0]) and value(r[1])


FROZEN = Rule(
    f"one of {', '.join(FREEZE)}, first_3_layers",
    lambda v: isinstance(v, str) and (v in FREEZE or bool(re.fullmatch(r"first_[1-9]\d*_layers", v))),
    (*FREEZE, "first_3_layers"),
)
ACTED = Rule(
    f"a list of [regular expression, {' | '.join(ACTIONS)}]",
    lambda v: isinstance(v, (list, tuple)) and all(_is_rule(r, lambda a: a in ACTIONS) for r in v),
)
DECAY = Rule(
    "a list of [regular expression, factor from 0]",
    lambda v: isinstance(v, (list, tuple)) and all(_is_rule(r, _number(0).holds) for r in v),
)
ARMS = Rule(
    "a list of [name, {overrides}]",
    lambda v: isinstance(v, (list, tuple)) and all(_is_arm(a) for a in v),
)

PACKAGES = {"position": "positions", "attention": "attention", "task": "tasks"}  # whose methods a key names
SCHEMA: dict[str, Any] = {
    "name": TEXT,
    "mode": _one_of("train", "eval"),
    "tensorboard": YES_NO,
    "seed": Rule("whole numbers from 0 to 2^32 - 1", lambda v: _int(0).holds(v) and v < 2**32),
    "checkpoint": TEXT,
    "ignore": NAMES,
    "position": OWN_OR_METHODS,
    "attention": OWN_OR_METHOD,
    "dtype": _one_of("float32", "bfloat16"),
    "remat": _one_of("none", "full", "dots"),
    "chunk_size": _int(0),
    "task": METHOD,
    "data": {
        "source": TEXT,
        "documents": _int(0),
        "folds": _int(2),
        "fold": _int(-1),
        "heldout": ANY_TEXT,
        "text": TEXT,
        "label": ANY_TEXT,
        "data_dir": ANY_TEXT,
    },
    "train": {"steps": _int(0), "batch_size": _int(1), "view": TEXT, "accumulate": _int(1), "log_every": _int(1)},
    "optim": {
        "learning_rate": _number(0, above=True),
        "warmup_steps": _int(0),
        "schedule": _one_of(*SCHEDULES),
        "weight_decay": _number(0),
        "b1": _number(0, 1),
        "b2": _number(0, 1),
        "eps": _number(0, above=True),
        "clip_norm": _number(0, above=True),
        "decay": DECAY,
        "layer_decay": Rule("numbers above 0, up to 1", lambda v: _number(0, above=True).holds(v) and v <= 1),
        "freeze": FROZEN,
        "freeze_rules": ACTED,
        "ema": _number(0, 1),
    },
    "eval": {
        "every": _int(1),
        "batch_size": _int(1),
        "examples": _int(1),
        "views": Rule("a list of names, at least one", lambda v: NAMES.holds(v) and bool(v)),
        "best": ANY_TEXT,
        "patience": _int(0),
    },
    "save": {
        "every_minutes": _number(0, above=True),
        "keep": _int(1),
        "dtype": _one_of("float32", "float16", "bfloat16", "no"),
        "format": _one_of("stock", "lpe"),
    },
    "mesh": SIZES,
    "sharding_rules": Rule(
        "{logical axis: mesh axis}", lambda v: isinstance(v, Mapping) and all(isinstance(x, str) for x in v.values())
    ),
    "arms": ARMS,
}


def check(config: Mapping[str, Any], schema: Mapping[str, Any] = SCHEMA, prefix: str = "") -> None:
    """Raises ValueError that names every key that is unknown, missing or out of range, with the nearest known key."""
    if hasattr(config, "to_dict"):
        raise ValueError("the config is a ConfigDict, and a run takes plain data: run(config.to_dict())")
    problems = _problems(config, schema, prefix)
    if problems:
        raise ValueError("the config cannot be run:\n  " + "\n  ".join(problems))


def _problems(config: Mapping[str, Any], schema: Mapping[str, Any], prefix: str) -> list[str]:
    found = [f"{prefix}{k}: unknown key{nearest(k, sorted(schema))}" for k in config if k not in schema]
    for key, rule in schema.items():
        if key not in config:
            found.append(f"{prefix}{key}: missing")
        elif isinstance(rule, Rule):
            if not rule.holds(config[key]):
                near = nearest(str(config[key]), list(rule.names)) if rule.names else f", allowed: {rule.allowed}"
                found.append(f"{prefix}{key}={config[key]!r}{near}")
        elif not isinstance(config[key], Mapping):
            found.append(f"{prefix}{key}={config[key]!r}, allowed: a group of keys ({', '.join(rule)})")
        else:
            found += _problems(config[key], rule, f"{prefix}{key}.")
    return found


def explain(keys: list[str]) -> str:
    """For keys given on the command line as "train.setps": the first that is unknown, and what is near it."""
    for key in keys:
        level: Any = SCHEMA
        for part in key.split("."):
            if isinstance(level, Rule):
                package = PACKAGES.get(key.split(".")[0])
                if package and part != "name" and part not in (known := options(package)):
                    return f"no method of lpe.{package} has an option {part!r}{nearest(part, known)}"
                break
            if part not in level:
                return f"the config has no key {key!r}{nearest(part, sorted(level))}"
            level = level[part]
    return f"this config sets no {' or no '.join(keys)}; add the option in the config file, or check its spelling"


def merged(config: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict:
    """`config` with an arm's overrides: groups are merged key by key, a method ({"name": …}) is replaced whole."""
    out = dict(config)
    for key, value in overrides.items():
        own = key in PACKAGES and (not value or "name" in value)  # {} is the checkpoint's own
        group = isinstance(value, Mapping) and not own and isinstance(out.get(key), Mapping)
        out[key] = merged(out[key], value) if group else value
    return out
