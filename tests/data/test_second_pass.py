import numpy as np
import pytest
from scipy import sparse

from latentdag.data.stream import context_blocks

X = np.arange(12.0).reshape(6, 2)
LABELS = ["b", "a", "b", "WT", "WT", "other"]


def gathered(data):
    found = {0: [], 1: [], 2: []}
    for k, rows in context_blocks(data, ("WT", "a", "b"), 2):
        found[k].append(rows)
    return {k: np.concatenate(rows) for k, rows in found.items()}


@pytest.mark.parametrize(
    "data", [(X, LABELS), (sparse.csr_matrix(X), LABELS), [(X[:3], LABELS[:3]), (X[3:], LABELS[3:])]]
)
def test_rows_come_by_context(data):
    found = gathered(data)
    assert np.array_equal(found[0], X[3:5])
    assert np.array_equal(found[1], X[1:2])
    assert np.array_equal(found[2], X[[0, 2]])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((X[:, :1], LABELS), "1 features, the moments 2"),
        ((X[:3], LABELS[:3]), "no rows of context 'WT'"),
        (X, "pair"),
    ],
)
def test_other_data_are_refused(data, message):
    with pytest.raises(ValueError, match=message):
        gathered(data)
