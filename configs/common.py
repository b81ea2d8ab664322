"""Defaults of every config, and the argument behind the colon: `configs/hier.py:length=2048,alpha=0.4`."""

import ast
import difflib
from typing import Any

from ml_collections import ConfigDict


def get_config() -> Any:
    """Every key that a config may have; lpe/settings.py says what each allows."""
    return ConfigDict(
        {
            "name": "run",
            "mode": "train",  # "eval": only evaluate what an earlier run left in --workdir
            "tensorboard": False,  # event files beside metrics.jsonl
            "seed": 0,
            "checkpoint": "bert-mini",  # a folder, a hub id, or an embedded name
            "ignore": (),  # beginnings of tensor names in it to leave out, as of heads that lpe does not know
            "position": {},  # the checkpoint's own; or {"name": …, options}; or a list of such, as in configs/position.py
            "attention": {},  # the checkpoint's own; or {"name": …, options}, as {"name": "window", "attention_window": 256}
            "dtype": "float32",  # of the computation; parameters are float32
            "remat": "none",  # what the backward pass recomputes: none, full, dots
            "chunk_size": 0,  # tokens at a time of the feed-forward part, to save memory; 0 for all (MLM head: task.chunk_size)
            "task": {"name": "mlm", "length": 128, "mask_rate": 0.15},
            "data": {
                "source": "sotu",  # what else it may be, and what the keys below mean: lpe/data/sources.py
                "documents": 0,  # per split, 0 for all
                "folds": 10,  # one of them is held out where the source has no splits
                "fold": -1,  # -1: the last
                "heldout": "",  # the split to hold out, where the source has several
                "text": "text",  # names of fields, columns or features
                "label": "label",
                "data_dir": "",  # of tfds:NAME
            },
            "train": {"steps": 1000, "batch_size": 32, "view": "full", "accumulate": 1, "log_every": 10},
            "optim": {
                "learning_rate": 5e-4,
                "warmup_steps": 100,
                "schedule": "linear",
                "weight_decay": 0.01,
                "b1": 0.9,
                "b2": 0.98,
                "eps": 1e-6,
                "clip_norm": 1.0,
                "decay": ((r".*/(bias|scale)", 0.0), (r"position/.*", 0.0), (".*", 1.0)),  # factors of weight_decay
                "layer_decay": 1.0,  # rate of a layer by that of the one above it
                "freeze": "none",  # all_but_positions, new_rows_only, first_3_layers; or instead
                "freeze_rules": (),  # ((regex over paths, "train" | "freeze" | "new_rows"), …), the first match decides
                "ema": 0.0,  # decay of a moving average of the parameters, which is then evaluated and saved
            },
            "eval": {
                "every": 500,
                "batch_size": 32,
                "examples": 200,
                "views": ("full",),
                "best": "",  # "VIEW/METRIC": the result is the best evaluation, not the last step
                "patience": 0,  # end after so many evaluations without a better one
            },
            # Of the model folder at the end: dtype "no" for none; format "lpe" where no stock class has the model.
            "save": {"every_minutes": 2.0, "keep": 2, "dtype": "float32", "format": "stock"},
            "mesh": {"data": -1},
            "sharding_rules": {},
            "arms": (),  # (name, overrides): the same run with changes, side by side in one report
        }
    )


def parse(argument: str | None, **defaults: Any) -> Any:
    """The argument "key=value,flag,…" as a ConfigDict with the given defaults; a bare key means True.

    Raises:
      ValueError: a key that the config does not take, or a value of another type than its default.
    """
    values = dict(defaults)
    for part in filter(None, (argument or "").split(",")):
        key, equals, text = part.partition("=")
        if key not in defaults:
            near = difflib.get_close_matches(key, defaults, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise ValueError(f"this config takes no argument {key!r}; {hint}it takes {', '.join(defaults)}")
        values[key] = _value(key, text, defaults[key]) if equals else True
        if not equals and not isinstance(defaults[key], bool):
            raise ValueError(f"argument {key!r} needs a value: {key}={defaults[key]}")
    return ConfigDict(values)


def _value(key: str, text: str, default):
    if isinstance(default, str):
        return text
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError) as e:
        raise ValueError(f"argument {key}={text!r} is not a {type(default).__name__}, as in {key}={default}") from e
    if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not type(default):
        raise ValueError(f"argument {key}={text!r} is not a {type(default).__name__}, as in {key}={default}")
    return value
