"""A Longformer from a BERT (arXiv 2004.05150, §5): windows, [CLS] global, copied positions; then tuning at length.

    python -m lpe.main --config=configs/longformer.py

bert-mini reads 1,010 tokens with a window of 128, before, while and after tuning; beside it independent blocks of 128, and the
window without a global token. Two CPU cores need about three minutes. Windows are saved as stock Longformers, blocks, which no
stock class has, in lpe's own form.

Your own checkpoint and text:

    python -m lpe.main --config=configs/longformer.py:checkpoint=DIR,data=PATH,length=4096,window=512,remat=full,chunk_size=512
"""

from configs import common, hier


def get_config(argument: str | None = None):
    arg = common.parse(
        argument,
        checkpoint="bert-mini",
        data="sotu",
        length=1024,
        window=128,
        steps=120,
        remat="none",  # "full" for long inputs: less memory, more time
        chunk_size=0,
        debug=False,
    )
    shared = f"length={arg.length},checkpoint={arg.checkpoint},data={arg.data},steps={arg.steps},remat={arg.remat}"
    config = hier.get_config(shared + ",batch_size=2,examples=40" + ",debug" * arg.debug)
    config.name = "longformer"
    config.position = {"name": "copy", "max_length": arg.length}
    config.attention = {"name": "window", "attention_window": arg.window, "global_tokens": "cls"}
    config.chunk_size = config.task.chunk_size = arg.chunk_size
    config.eval.views = ("full",)
    local = {"name": "window", "attention_window": arg.window}
    config.arms = (
        (f"window {arg.window}, [CLS] global", {}),
        (f"window {arg.window}", {"attention": local}),
        (f"blocks of {arg.window}", {"attention": {"name": "chunked", "chunk_size": arg.window}, "save": {"format": "lpe"}}),
    )
    return config
