"""The founding experiment: BERT reads inputs three times its length with hierarchical positions (kexue.fm/archives/7947).

    python -m lpe.main --config=configs/hier.py

bert-mini has 128 position rows. It predicts masked tokens in inputs of 380: before, while and after tuning there. In the same
table, on the same text and masks: the tokens read as 3 × 128, equal tuning at 128, and new random rows with equal tuning.
Two CPU cores need about four minutes.

Your own checkpoint and text:

    python -m lpe.main --config=configs/hier.py:checkpoint=DIR_OR_HUB_ID,data=PATH,length=2048,alpha=0.4
"""

from configs import common


def get_config(argument: str | None = None):
    arg = common.parse(
        argument,
        checkpoint="bert-mini",
        data="sotu",
        length=384,
        alpha=0.4,
        steps=240,
        batch_size=4,  # windows; small and often recovers sooner than large and seldom
        learning_rate=0.0,  # 0: 1e-3 for bert-mini, 5e-5 for a larger model
        examples=100,
        remat="none",  # "full" for long inputs: less memory, more time
        debug=False,
    )
    config = common.get_config()
    config.name = "hier"
    config.checkpoint = arg.checkpoint
    config.data.source = arg.data
    config.remat = arg.remat
    config.task = {"name": "mlm", "length": arg.length, "mask_rate": 0.15}
    config.position = {"name": "hierarchical", "alpha": arg.alpha, "max_length": arg.length}
    config.train.update(steps=arg.steps, batch_size=arg.batch_size, log_every=5)
    rate = arg.learning_rate or (1e-3 if arg.checkpoint == "bert-mini" else 5e-5)
    config.optim.update(learning_rate=rate, warmup_steps=max(1, arg.steps // 10), schedule="linear")
    config.eval.update(
        every=max(1, arg.steps // 6),
        batch_size=max(1, 20 * 384 // arg.length),
        examples=arg.examples,
        views=("full", "pieces"),
    )
    random_rows = {"name": "random", "max_length": arg.length}
    short = {"position": {"name": "learned"}, "train": {"view": "pieces"}, "eval": {"views": ("first", "pieces")}}
    config.arms = (
        (f"hierarchical α={arg.alpha}, tuned long", {}),
        ("random rows, tuned long", {"position": random_rows, "eval": {"views": ("full",)}}),
        ("learned rows, tuned short", short),
    )
    if arg.debug:
        config.data.documents = 2
        config.train.update(steps=2, batch_size=2)
        config.eval.update(every=1, batch_size=2, examples=4)
    return config
