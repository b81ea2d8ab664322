"""Longformer's Table 4 (arXiv 2004.05150, §4.2.2) on bert-mini: windows that grow or shrink with depth, dilation on two heads.

    python -m lpe.main --config=configs/longformer_table4.py    # one seed
    python -m experiments.e006_longformer                       # three seeds, in bits per token and per character

Windows of one mean width over the four layers, 128 as the checkpoint's length and 32, where they are tight, and [CLS]. The
dilated arm has growing windows; in its two upper layers two of four heads see every second and every third key (the paper's
small model, App. B: none in the lower half, then more and more, on two heads). The paper trains each pattern from scratch, as a
character model; here all start from the same weights, trained with dense attention, and have equal tuning.
"""

from configs import common, longformer_table5

GROWING = {128: (32, 96, 160, 224), 32: (8, 24, 40, 56)}  # by mean
DILATION = (1, 1, (1, 1, 2, 2), (1, 1, 3, 3))


def get_config(argument: str | None = None):
    arg = common.parse(
        argument, checkpoint="bert-mini", data="sotu", length=1024, steps=40, learning_rate=3e-4, debug=False
    )  # fmt: skip
    shared = f"checkpoint={arg.checkpoint},data={arg.data},length={arg.length},steps={arg.steps}"
    config = longformer_table5.get_config(shared + ",debug" * arg.debug)
    config.name = "longformer_table4"
    if not arg.debug:
        config.optim.learning_rate = arg.learning_rate
        config.eval.every = max(1, arg.steps)
    every = tuple(arm for mean in GROWING for arm in arms(mean))
    config.arms = every[1:2] if arg.debug else every  # the others take long to compile
    return config


def arms(mean):
    """The arms of one mean width."""
    growing = GROWING[mean]
    windows = {"growing": growing, "fixed": (mean,) * len(growing), "shrinking": growing[::-1]}
    for name, widths in windows.items():
        yield f"{name}, mean {mean}", {"attention": _window(widths)}
    yield f"growing, 2 heads dilated, mean {mean}", {"attention": {**_window(growing), "dilation": DILATION}}


def _window(widths):
    return {"name": "window", "attention_window": widths, "global_tokens": "cls"}
