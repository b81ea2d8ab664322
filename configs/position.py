"""Any position method, or several, in the main job's task: zero-shot and after tuning at the wanted length.

    python -m lpe.main --config=configs/position.py:method=rope_yarn
    python -m lpe.main --config=configs/position.py:method=learned+alibi,max_length=128

The config.yml of `001…txt` §5 (position_encoding: method, max_length, alpha, base_frequency) has its keys as arguments:

    python -m lpe.main --config=configs/position.py:method=hierarchical,max_length=384,alpha=0.8
    python -m lpe.main --config=configs/position.py:method=ntk-aware,max_length=384,base_frequency=10000
    python -m lpe.main --config=configs/position.py:method=linear,max_length=384

bert-mini has 128 rows; with a checkpoint of 512 the article's max_length=32768 is reached by all three. Two cores need about
90 seconds. The model is saved in lpe's own form, which every method has; --config.save.format=stock where it makes a table.
"""

from ml_collections import ConfigDict

from configs import common, hier

ARTICLE = {"ntk-aware": "sinusoidal_ntk", "linear": "interpolate"}  # its names and lpe's; a table has no base to change
UNLIMITED = ("learned", "alibi", "logn", "nezha", "shaw", "t5", "transformer_xl")  # take no max_length
ALPHA = ("hierarchical", "hierarchical_naive")


def get_config(argument: str | None = None):
    arg = common.parse(
        argument,
        method="hierarchical",  # names joined by + are composed
        max_length=384,
        alpha=0.4,
        base_frequency=10000.0,  # of sinusoidal_ntk and sinusoidal
        rope_theta=10000.0,  # of rope and its relatives, and of xpos
        causal=False,
        checkpoint="bert-mini",
        data="sotu",
        steps=240,
        debug=False,
    )
    shared = f"length={arg.max_length},checkpoint={arg.checkpoint},data={arg.data},steps={arg.steps}"
    config = hier.get_config(shared + ",debug" * arg.debug)
    config.name = f"position, {arg.method}"
    methods = [method(ARTICLE[name] if name in ARTICLE else name, arg) for name in arg.method.split("+")]
    with config.ignore_type():  # a list where the defaults have one method
        config.position = tuple(methods) if len(methods) > 1 else ConfigDict(methods[0])
    if arg.causal:
        config.attention = {"name": "full", "causal": True}
    config.eval.views = ("full",)
    config.save.format = "lpe"
    config.arms = ()
    return config


def method(name: str, arg) -> dict:
    """The options of one method."""
    spec = {"name": name}
    if name not in UNLIMITED:
        spec["max_length"] = arg.max_length
    if name in ALPHA:
        spec["alpha"] = arg.alpha
    if name.startswith("sinusoidal"):
        spec["base"] = arg.base_frequency
    if name.startswith("rope") or name == "xpos":
        spec["rope_theta"] = arg.rope_theta
    return spec
