"""Linear algebra that the closed form leans on."""

import pickle

import numpy as np
import pytest

from latentdag.core import linalg
from latentdag.core.context_error import ContextError, NotInModelError
from latentdag.core.linalg import Spectrum

RNG = np.random.default_rng(0)
ORTHOGONAL = np.linalg.qr(RNG.standard_normal((9, 9)))[0]
MATRICES = {
    "one": np.array([[3.0]]),
    "three": np.diag([2.0, -1.0, 0.5]),
    "four": np.diag([1.0, 4.0, 2.0, 3.0]),
    "identity": np.eye(6),
    "diagonal": np.diag(np.arange(7.0)),
    "repeated ends": ORTHOGONAL @ np.diag([1, 1, 2, 3, 4, 5, 6, 7, 7.0]) @ ORTHOGONAL.T,
    "far apart": ORTHOGONAL @ np.diag(10.0 ** np.arange(-4, 5)) @ ORTHOGONAL.T,
    "blocks": np.kron(np.eye(3), [[2.0, 1.0, 0.0], [1.0, 2.0, 0.5], [0.0, 0.5, 1.0]]),
    "covariance": np.cov(RNG.standard_normal((100, 83)), rowvar=False),
}


@pytest.mark.parametrize("S", MATRICES.values(), ids=MATRICES)
def test_single_eigenpairs_are_those_of_eigh(S):
    S = (S + S.T) / 2
    before = S.copy()
    spectrum, every = Spectrum(S), np.linalg.eigvalsh(S)
    size, ends = np.abs(every).max(), sorted({0, len(S) - 1})
    np.testing.assert_allclose([spectrum.value(i) for i in range(len(S))], every, atol=1e-12 * size)
    w, V = spectrum.pairs(ends)
    np.testing.assert_allclose(w, every[ends], atol=1e-12 * size)
    np.testing.assert_allclose(S @ V, V * w, atol=1e-11 * size)
    np.testing.assert_allclose(V.T @ V, np.eye(len(w)), atol=1e-11)
    distinct = np.flatnonzero(np.diff(every) > 1e-6 * size)
    assert all(spectrum.none_between(every[i] + 1e-9 * size, every[i + 1] - 1e-9 * size) for i in distinct)
    assert not any(spectrum.none_between(w - 1e-9 * size, w + 1e-9 * size) for w in every if size)
    np.testing.assert_array_equal(S, before)


@pytest.mark.parametrize("seed", range(60))
def test_fewer_samples_than_dimensions_are_never_definite(seed):
    """And as many as are needed always are; a change of units changes neither."""
    rng = np.random.default_rng(seed)
    p = int(rng.integers(2, 40))
    A = rng.normal(size=(p, p)) * 10.0 ** rng.uniform(-6, 6, p)
    few = rng.normal(size=(int(rng.integers(2, p + 1)), p)) @ A + 10 * rng.normal(size=p)
    assert not linalg.is_definite(np.atleast_2d(np.cov(few.T)))
    with pytest.raises(ContextError, match="not positive definite"):
        linalg.upper_factor(np.cov(few.T), context=1)
    assert linalg.is_definite(np.cov((rng.normal(size=(4 * p, p)) * 10.0 ** rng.uniform(-30, 30, p)).T))


@pytest.mark.parametrize("seed", range(20))
def test_rows_and_their_inverse_whatever_the_units(seed):
    rng = np.random.default_rng(seed)
    H, units = rng.normal(size=(4, 4)), 10.0 ** rng.uniform(-30, 30, 4)
    assert linalg.full_row_rank(H / units)
    np.testing.assert_allclose(linalg.right_inverse(H / units) / units[:, None], np.linalg.inv(H), rtol=1e-9)
    H[3] = H[0] - 2 * H[2]
    assert not linalg.full_row_rank(H / units)


def test_errors_come_back_from_other_processes():
    error = NotInModelError(2, "it is singular")
    error.args = ("context 'A': it is singular",)
    back = pickle.loads(pickle.dumps(error))
    assert (type(back), back.context, back.reason, str(back)) == (NotInModelError, 2, error.reason, str(error))
