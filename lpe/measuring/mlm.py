"""MLM accuracy of a model at a length, by the task and the evaluation that runs have (lpe.tasks.mlm, lpe.evaluate)."""

import jax

from lpe import build, evaluate, sharding
from lpe.data.document import Document
from lpe.data.windows import Windows
from lpe.measuring.needle import BATCH
from lpe.model import Model
from lpe.tasks.base import Task

RATE = 0.15  # of the tokens are masked, BERT's
VIEWS = {"whole": "full", "first": "first", "pieces": "pieces"}  # how a text is read, and the task's word for it


def task(model: Model, length: int) -> Task:
    """Raises ValueError without an MLM head, or where the tokenizer does not serve."""
    model.require("mlm")
    made = build.task({"name": "mlm", "length": length, "mask_rate": RATE}, build.network(model.recipe))
    made.check(model.tokenizer)
    return made


def windows(untouched: Model, docs: list[Document], length: int, what: str) -> Windows:
    """The documents in sequence as windows of an input's tokens; what is left at the end is no window.

    Raises:
      ValueError: the text is shorter than one window; `what` names it.
    """
    joined = Document("\n".join(d.text for d in docs), what)
    cut: Windows = task(untouched, length).prepare([joined], untouched.tokenizer)
    whole = cut.real == cut.tokens.shape[1]
    if not whole.any():
        raise ValueError(
            f"--lengths={length}: the held-out part of {what}, which alone is read with an MLM head, has {cut.real.sum()} "
            f"tokens, and an input of {length} needs {cut.tokens.shape[1]}; take a smaller length, more text, or "
            "--task=needle, which reads all of it"
        )
    return cut._replace(tokens=cut.tokens[whole], real=cut.real[whole], document=cut.document[whole])


def score(model: Model, cut: Windows, length: int, *, read: str, examples: int) -> dict:
    """Accuracy at masked places, its standard error over windows, and how many windows there were."""
    made = task(model, length)
    mesh = sharding.mesh({"data": -1})
    batches = made.dataset(cut, model.tokenizer, VIEWS[read], max(1, BATCH // length), limit=examples)
    predict = jax.jit(made.predict)
    found = made.score((b, evaluate.outputs(predict, model.params, mesh, b)) for b in batches)
    count = len(found["by_unit"])
    return {"metric": "accuracy at masked places", "quality": found["accuracy"], "error": found["accuracy_se"], "count": count}
