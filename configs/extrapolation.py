"""Position methods in place of bert-mini's table, trained alike at 128 tokens, to be read at 128 … 1,024 (experiment 005).

    python -m experiments.sweep --config=configs/extrapolation.py --workdir=FOLDER
    python -m experiments.sweep --config=configs/extrapolation.py:tune=FOLDER          # then rope's models, at 512 tokens

`experiments/e005_extrapolation.py` runs both and reads what they leave. Every run starts from bert-mini's weights without its
table (`learned` keeps it) and sees the same batches in the same order; attention is dense.
"""

from configs import common

SEEDS = (0, 1, 2)
METHODS = ("learned", "rope", "t5", "shaw", "alibi", "nezha", "transformer_xl", "sinusoidal", "learned + alibi")
SMALL = ("rope",)
SCALED = ("rope", "rope_linear", "rope_ntk", "rope_yarn")
TUNED_LENGTH = 512


def get_config(argument: str | None = None):
    arg = common.parse(
        argument,
        tune="",  # folder of the first sweep
        steps=0,  # 0: 300, and 60 of tuning
        batch_size=0,  # windows; 0: 8, and 4 in tuning
        learning_rate=0.0,  # 0: 2e-3, and 5e-4 in tuning
        debug=False,
    )
    config = common.get_config()
    config.name = "extrapolation"
    config.task = {"name": "mlm", "length": TUNED_LENGTH if arg.tune else 128, "mask_rate": 0.15, "train_mask_rate": 0.3}
    config.position = {"name": "rope"}
    steps = arg.steps or (60 if arg.tune else 300)
    config.train.update(steps=steps, batch_size=arg.batch_size or (4 if arg.tune else 8), log_every=20)
    config.optim.update(learning_rate=arg.learning_rate or (5e-4 if arg.tune else 2e-3), warmup_steps=max(1, steps // 10))
    config.eval.update(examples=100, views=("pieces", "full" if arg.tune else "shuffled"))
    config.save.format = "lpe"
    if arg.tune:
        config.checkpoint = arg.tune
    if arg.debug:
        config.data.documents = 2
        config.train.update(steps=2, batch_size=2)
        config.eval.update(batch_size=2, examples=2)
    config.eval.every = config.train.steps
    return config


def sweep(add, config):
    """Methods by seed, one seed of all first; with `tune` scaled rotary positions by seed."""
    debug = config["data"]["documents"] > 0
    for seed in SEEDS[: 1 if debug else None]:
        if config["checkpoint"] != "bert-mini":
            checkpoint = f"{config['checkpoint']}/rope.{seed}/{config['name']}/model"
            for name in SCALED[1:2] if debug else SCALED:
                reach = {} if name == "rope" else {"max_length": TUNED_LENGTH}
                add(name, {"position": {"name": name, **reach}, "checkpoint": checkpoint, "seed": seed})
            continue
        for name in SMALL if debug else METHODS:
            position = [{"name": part} for part in name.split(" + ")]
            add(name, {"position": position if len(position) > 1 else position[0], "seed": seed})
