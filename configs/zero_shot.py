"""Every absolute position method on the same windows and masks, without tuning: bert-mini at three and eight times its length.

    python -m experiments.sweep --config=configs/zero_shot.py

Beside them stands the checkpoint as it is, which reads the same tokens in pieces of its own length. Each method is read with
dense attention, and with patterns in which a token sees about as many keys as the checkpoint has positions, 128.
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
PATTERNS = {
    "window 128, [CLS] global": {"name": "window", "attention_window": 128, "global_tokens": "cls"},
    "blocks of 128": {"name": "chunked", "chunk_size": 128},
    "BigBird, blocks of 16": {"name": "bigbird", "block_size": 16},
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
    """Methods by length with dense attention, and the untouched checkpoint; then methods by length and pattern."""
    for length in LENGTHS:
        untouched = {"position": {"name": "learned"}, "train": {"view": "pieces"}, "eval": {"views": ("pieces",)}}
        add(f"learned, in pieces, of {length:,}", {**untouched, "task": _task(length)})
        for name, position in METHODS.items():
            add(f"{name}, {length:,}", {"position": {**position, "max_length": length}, "task": _task(length)})
    for length in LENGTHS:
        for pattern, attention in PATTERNS.items():
            for name, position in METHODS.items():
                run = {"position": {**position, "max_length": length}, "task": _task(length), "attention": attention}
                add(f"{name}, {length:,}, {pattern}", run)


def _task(length):
    return {"name": "mlm", "length": length, "mask_rate": 0.15}
