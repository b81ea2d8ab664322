"""lpe: long position embeddings. Take the BERT you have and make it read long documents, in JAX."""

from lpe import positions
from lpe.model import Model, from_pretrained
from lpe.verification import verify

__all__ = ["Model", "from_pretrained", "positions", "verify"]
