"""Pretrains bert-mini, the embedded checkpoint: 4 layers × 128, 512 word pieces, 128 position rows, on the speeches alone.

    python -m experiments.make_bert_mini start ~/.cache/lpe/bert-mini-start
    python -m lpe.main --config=configs/bert_mini.py --workdir=$HOME/.cache/lpe/bert-mini

Beside the accuracy stands that of the same model with shuffled positions: a model that uses no order scores the same in both.
"""

from configs import common


def get_config(argument: str | None = None):
    arg = common.parse(argument, steps=14_000, start="~/.cache/lpe/bert-mini-start", learning_rate=1.5e-3, debug=False)
    config = common.get_config()
    config.name = "bert-mini"
    config.checkpoint = "bert-mini" if arg.debug else arg.start
    config.task = {"name": "mlm", "length": 128, "mask_rate": 0.15, "train_mask_rate": 0.3}
    config.train.update(steps=arg.steps, batch_size=16, log_every=100)
    config.optim.update(learning_rate=arg.learning_rate, warmup_steps=200, schedule="cosine", weight_decay=0.01)
    config.eval.update(every=1000, batch_size=64, examples=1024, views=("pieces", "shuffled"))
    config.save = {"every_minutes": 2.0, "keep": 2, "dtype": "float32", "format": "stock"}
    if arg.debug:
        config.data.documents = 2
        config.train.update(steps=2, batch_size=2)
        config.eval.update(every=1, batch_size=2, examples=4)
    return config
