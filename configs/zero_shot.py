"""Every absolute position method on the same windows and masks, without tuning: bert-mini at three and eight times its length.

    python -m experiments.sweep --config=configs/zero_shot.py

Beside them stands the checkpoint as it is, which reads the same tokens in pieces of its own length.
"""

from configs import hier

LENGTHS = (384, 1024)
METHODS = {
    "hierarchical, α = 0.4": {"name": "hierarchical"},
    "hierarchical_naive, α = 0.4": {"name": "hierarchical_naive"},
    "interpolate, linear": {"name": "interpolate"},
    "interpolate, cubic": {"name": "interpolate", "kind": "cubic"},
    "copy": {"name": "copy"},
    "grouped": {"name": "grouped"},
    "preserve_short": {"name": "preserve_short"},
    "random": {"name": "random"},
}


def get_config(argument: str | None = None):
    config = hier.get_config(argument)
    config.name = "zero_shot"
    config.train.steps = 0
    config.save.dtype = "no"
    config.eval.views = ("full",)
    config.arms = ()
    return config


def sweep(add, config):
    """Methods by length, and the untouched checkpoint."""
    for length in LENGTHS:
        task = {"name": "mlm", "length": length, "mask_rate": 0.15}
        untouched = {"position": {"name": "learned"}, "task": task, "train": {"view": "pieces"}, "eval": {"views": ("pieces",)}}
        add(f"learned, in pieces, of {length:,}", untouched)
        for name, position in METHODS.items():
            add(f"{name}, {length:,}", {"position": {**position, "max_length": length}, "task": task})
