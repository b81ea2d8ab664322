"""What lpe adds to config.json in a field `lpe`, and its own folder, for models that no stock class expresses.

In a stock folder the field says what transformers has no name for: which tokens are global, how far scaled rotary positions
reach. lpe's own folder has model_type "lpe", so that no other program takes it for what it is not. The rest of config.json
there is as the family writes it, the field has `model_type`, `heads`, `position` and `attention`, and tensors have lpe's names.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from lpe.checkpoint import mapping
from lpe.checkpoint.mapping import Row
from lpe.params import Spec

FIELD = MODEL_TYPE = "lpe"
WHOLE = {"model_type", "heads", "position", "attention"}  # of the field in lpe's own folder
PART = {"position", "attention"}  # in a stock folder


def unpack(raw: dict, source: str) -> dict:
    """config.json of either kind with the family's model_type.

    Raises:
      ValueError: a field `lpe` that lpe has not written.
    """
    about = raw.get(FIELD, {})
    whole = raw.get("model_type") == MODEL_TYPE
    if not isinstance(about, dict) or (about.keys() != WHOLE if whole else about.keys() - WHOLE):
        names = ", ".join(sorted(WHOLE if whole else PART))
        raise ValueError(f"{source}: {FIELD}={about!r} in config.json, needed is {{{names}: …}}, as lpe writes it")
    return {**raw, "model_type": about["model_type"]} if whole else raw


def is_whole(raw: Mapping[str, Any]) -> bool:
    """Whether a config.json, unpacked or not, is that of lpe's own folder."""
    return "heads" in raw.get(FIELD, {})


def pack(written: dict, heads: tuple[str, ...], position: tuple, attention: tuple) -> dict:
    """config.json of lpe's own folder from the one that the family writes."""
    about = {
        "model_type": written["model_type"],
        "heads": list(heads),
        "position": [plain(s) for s in position],
        "attention": plain(attention),
    }
    return {**written, "model_type": MODEL_TYPE, "architectures": ["Model"], FIELD: about}


def plain(spec: Any) -> Any:
    """A frozen spec of Recipe, tuples of (name, value), as JSON has it."""
    if isinstance(spec, tuple) and spec and all(isinstance(x, tuple) and len(x) == 2 and isinstance(x[0], str) for x in spec):
        return {k: plain(v) for k, v in spec}
    return [plain(x) for x in spec] if isinstance(spec, tuple) else spec


def table(specs: Mapping[str, Spec]) -> tuple[Row, ...]:
    """A row for each parameter: "layers/a/b" is layers.{i}.a.b, one of the position method in each layer position.a.{i}."""
    return tuple((path, _name(path, spec), "same") for path, spec in specs.items())


def _name(path: str, spec: Spec) -> str:
    name = path.replace("/", ".")
    if spec.axes[0] != "layers":
        return name
    return "layers.{i}." + name.removeprefix("layers.") if name.startswith("layers.") else name + ".{i}"


def tensors(specs: Mapping[str, Spec], params: dict) -> dict[str, np.ndarray]:
    """The tensors of lpe's own folder, float32."""
    return mapping.export_tensors(table(specs), params)
