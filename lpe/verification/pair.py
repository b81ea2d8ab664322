"""Two models that are compared, with what every check asks of them."""

from typing import NamedTuple

from lpe import build
from lpe.build import Network
from lpe.model import Model


class Pair(NamedTuple):
    """n: trained positions. rows: how many of them the methods of `after` read; same: whether positions are equal.

    longer: `after` has a longer table and the same method, as a folder has that was saved; it does not say how it was made.
    """

    before: Model
    after: Model
    old: Network
    new: Network
    n: int
    rows: int
    same: bool
    longer: bool
    tuned: bool

    @property
    def keeps(self) -> bool:
        """Whether short inputs shall find the vectors that they had."""
        claimed = "identity_on_trained" in self.old.position.claims & self.new.position.claims
        return self.same or (claimed and not self.longer)


def pair_of(before: Model, after: Model, tuned: bool) -> Pair:
    """Raises ValueError for what is no model, or for models that have nothing to compare."""
    for name, m in (("before", before), ("after", after)):
        if not isinstance(m, Model):
            raise ValueError(f"verify: {name} is a {type(m).__name__}, needed is an lpe.Model, as from_pretrained gives it")
    for name in ("family", "vocab_size", "hidden_size", "num_hidden_layers"):
        a, b = (m.recipe.family if name == "family" else getattr(m.config, name) for m in (before, after))
        if a != b:
            raise ValueError(
                f"verify: {name} is {a!r} before and {b!r} after; only a model and its own extension can be compared"
            )
    old, new = build.network(before.recipe), build.network(after.recipe)
    n = before.config.max_position_embeddings - before.config.reserved_rows
    n = min(n, n if old.position.max_length is None else old.position.max_length)
    limits = [dict(s).get("trained_rows") for s in after.recipe.position] + [new.position.max_length]
    rows = min([n, *(x for x in limits if x is not None)])
    tables = [m.params.get("position", {}).get("table") for m in (before, after)]
    other = [None if t is None else t.shape for t in tables]
    equal, same_shape = before.recipe.position == after.recipe.position, other[0] == other[1]
    return Pair(before, after, old, new, n, rows, equal and same_shape, equal and not same_shape, tuned)
