"""BERT reads inputs several times its length: hierarchical positions (Su Jianlin, kexue.fm/archives/7947), the founding experiment.

    python -m lpe.main --config=configs/hier.py

bert-mini has 128 position rows. Masked tokens are predicted in inputs of 384, before, while and after tuning there. In the
same table: the same tokens read as 3 × 128, equal tuning at 128, and new random rows with equal tuning.

Your own checkpoint and text:

    python -m lpe.main --config=configs/hier.py:checkpoint=DIR_OR_HUB_ID,data=PATH,length=2048,alpha=0.4
"""

from configs import common


def get_config(argument: str | None = None):
    arg = common.parse(
        argument, checkpoint="bert-mini", data="sotu", length=384, alpha=0.4, steps=60, batch_size=16, examples=120, debug=False
    )
    config = common.get_config()
    config.name = "hier"
    config.checkpoint = arg.checkpoint
    config.data.source = arg.data
    config.task = {"name": "mlm", "length": arg.length, "mask_rate": 0.15}
    config.position = {"name": "hierarchical", "alpha": arg.alpha, "max_length": arg.length}
    config.train = {"steps": arg.steps, "batch_size": arg.batch_size, "view": "full", "log_every": 1}
    config.optim.update(learning_rate=5e-4, warmup_steps=max(1, arg.steps // 10), schedule="linear")
    config.eval = {"every": max(1, arg.steps // 4), "batch_size": 20, "examples": arg.examples, "views": ("full", "pieces")}
    random_rows = {"name": "random", "max_length": arg.length}
    config.arms = (
        (f"hierarchical α={arg.alpha}", {}),
        ("random rows", {"position": random_rows, "eval": {"views": ("full",)}}),
        (
            "tuned short",
            {"position": {"name": "learned"}, "train": {"view": "pieces"}, "eval": {"views": ("first", "pieces")}},
        ),
    )
    if arg.debug:
        config.train.update(steps=2, batch_size=2)
        config.eval.update(every=1, batch_size=2, examples=4)
    return config
