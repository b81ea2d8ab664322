"""What an extended model keeps of the one it was made of, and a saved one of the model, held against what is promised."""

from lpe.verification.checks import verify

__all__ = ["verify"]
