"""Longformer's Table 5 (arXiv 2004.05150, §5) on bert-mini: copied or random rows; all weights tuned, or the new rows alone.

    python -m lpe.main --config=configs/longformer_table5.py    # one seed
    python -m experiments.e006_longformer                       # three seeds, in bits per token and per character

bert-mini's 128 rows become 1,024, each a parameter of its own, and a token sees a window of 128 and [CLS]. All arms have the
same steps, batches and schedule, at two rates: 1e-4 stands to that of bert-mini's pretraining about as the paper's 3e-5 to
RoBERTa's 6e-4; 1e-3 lets new rows get somewhere in so few steps, and random ones are tuned at it alone. An arm that the paper
does not have tunes the untouched checkpoint equally on the same tokens as 8 × 128: what tuning does by itself.
"""

from configs import common, hier

RATES = (1e-4, 1e-3)


def get_config(argument: str | None = None):
    arg = common.parse(argument, checkpoint="bert-mini", data="sotu", length=1024, window=128, steps=64, debug=False)
    if arg.debug:
        arg.length = 256
    shared = f"checkpoint={arg.checkpoint},data={arg.data},length={arg.length},steps={arg.steps}"
    config = hier.get_config(shared + ",batch_size=2,examples=30" + ",debug" * arg.debug)
    config.name = "longformer_table5"
    config.attention = {"name": "window", "attention_window": arg.window, "global_tokens": "cls"}
    config.position = {"name": "copy", "max_length": arg.length, "materialize": True}
    config.eval.views = ("full",)
    config.save.update(keep=1, dtype="no")
    if not arg.debug:
        config.eval.update(every=max(1, arg.steps // 2), batch_size=10)
    slow, fast = (tuple(arms(rate, arg.length)) for rate in RATES)
    config.arms = fast[::2] if arg.debug else tuple(arm for arm in slow if not arm[0].startswith("random")) + fast
    return config


def arms(rate, length):
    """The arms of one learning rate."""
    random = {"position": {"name": "random", "max_length": length}}
    untouched = {"position": {"name": "learned"}, "attention": {"name": "full"}}
    new_rows = {"learning_rate": rate, "freeze": "new_rows_only"}
    yield f"copied rows, all weights, rate {rate:g}", {"optim": {"learning_rate": rate}}
    yield f"copied rows, new rows only, rate {rate:g}", {"optim": new_rows}
    yield f"random rows, new rows only, rate {rate:g}", {**random, "optim": new_rows}
    yield f"random rows, all weights, rate {rate:g}", {**random, "optim": {"learning_rate": rate}}
    pieces = {"train": {"view": "pieces"}, "eval": {"views": ("pieces",)}}
    yield f"in pieces, all weights, rate {rate:g}", {**untouched, **pieces, "optim": {"learning_rate": rate}}
