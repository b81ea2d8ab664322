"""The weight α of the block in hierarchical positions, before and after tuning at three times the length (kexue.fm, 7947).

    python -m experiments.sweep --config=configs/alpha.py

The main job's run for α = 0.1 … 0.9 with three seeds each, on bert-mini. α = 0.5 does not exist: it gives the positions
(i, j) and (j, i) one vector. The article gives this ablation as a figure without numbers, for a Chinese
RoBERTa of 512 rows read at 1,536.
"""

from configs import hier

ALPHAS = (0.1, 0.2, 0.3, 0.4, 0.6, 0.7, 0.8, 0.9)
SEEDS = (0, 1, 2)


def get_config(argument: str | None = None):
    config = hier.get_config(argument)
    config.name = "alpha"
    config.eval.views = ("full",)
    config.eval.every = max(1, config.train.steps)
    config.arms = ()
    return config


def sweep(add, config):
    """α by seed; one seed of every α first."""
    length = config["task"]["length"]
    for seed in SEEDS:
        for alpha in ALPHAS:
            position = {"name": "hierarchical", "alpha": alpha, "max_length": length}
            add(f"α = {alpha}", {"position": position, "seed": seed}, x=alpha)
