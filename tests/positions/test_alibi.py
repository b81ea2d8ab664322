"""alibi: slopes for any number of heads, and the attention."""

import numpy as np
import pytest
import torch
from transformers.models.bloom.modeling_bloom import build_alibi_tensor

from lpe.positions import alibi

from . import equations

VARIANTS = [{}]
VALUES = [({}, lambda q, k, v, p, w: equations.alibi(q, k, v, p))]


@pytest.mark.parametrize("heads", [1, 2, 3, 6, 8, 12, 16, 20])
def test_slopes_are_those_of_bloom(heads):
    theirs = build_alibi_tensor(torch.ones(1, 2), heads, torch.float32)[:, 0, 1].numpy()
    np.testing.assert_allclose(alibi.slopes(heads), theirs, rtol=1e-6)
    np.testing.assert_allclose(alibi.slopes(heads), equations.alibi_slopes(heads), rtol=1e-6)
