"""Genres of the Brown corpus from the first 128 tokens, from head and tail, from pooled chunks, or from an extended input.

    python -m experiments.get_brown
    python -m lpe.main --config=configs/classify.py

500 texts of about 4,500 bert-mini tokens, 15 genres, one text in five held out. Every arm reads the same texts for the same
number of epochs. All five folds, with standard errors over them:

    python -m experiments.sweep --config=configs/classify.py

Your own checkpoint and data (a .csv, .jsonl or .parquet file with text and label, a folder of folders, tfds:NAME):

    python -m lpe.main --config=configs/classify.py:checkpoint=DIR_OR_HUB_ID,data=PATH,length=1024,learning_rate=5e-5
"""

from configs import common

FOLDS = 5


def get_config(argument: str | None = None):
    arg = common.parse(
        argument,
        checkpoint="bert-mini",
        data="~/.cache/lpe/data/brown.jsonl",
        length=1024,
        middle=384,  # a shorter extension, 0 for none
        epochs=4,
        texts=400,  # that one epoch trains on
        batch_size=16,
        learning_rate=1e-3,
        pool="mean",
        freeze="none",
        fold=0,
        only="",  # beginnings of the arms to run, joined by +, "" for all
        debug=False,
    )
    if arg.debug:
        arg.update(length=256, middle=0)
    config = common.get_config()
    config.name = "classify"
    config.checkpoint = arg.checkpoint
    config.data.update(source=arg.data, folds=FOLDS, fold=arg.fold)
    steps = max(1, arg.epochs * arg.texts // arg.batch_size)
    config.train.update(steps=steps, batch_size=arg.batch_size)
    config.optim.update(learning_rate=arg.learning_rate, warmup_steps=max(1, steps // 10), freeze=arg.freeze)
    config.eval.update(every=steps, batch_size=20, examples=1000)
    config.task = {"name": "classify", "length": arg.length, "pool": arg.pool}
    kept = tuple(arg.only.split("+"))
    config.arms = tuple((name, over) for name, over in arms(arg) if name.startswith(kept))
    if arg.debug:  # on the embedded speeches
        config.data.update(source="sotu", label="party", documents=20, folds=10, fold=-1)
        config.train.update(steps=2, batch_size=2)
        config.eval.update(every=1, batch_size=2, examples=4)
    return config


def arms(arg):
    """The ways to read a long text: within the trained length, and beyond it."""
    for view in ("truncate", "head_tail", "chunks"):
        yield view, {"train": {"view": view}, "eval": {"views": (view,)}}
    for length in filter(None, (arg.middle, arg.length)):
        yield (
            f"hierarchical, {length:,}",
            {
                "position": {"name": "hierarchical", "max_length": length},
                "task": {"name": "classify", "length": length, "pool": arg.pool},
                "eval": {"views": ("full",)},
            },
        )


def sweep(add, config):
    """Every arm on every fold."""
    for fold in range(FOLDS):
        for name, over in config["arms"]:
            add(name, {**over, "data": {"fold": fold}})
