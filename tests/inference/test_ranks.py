"""The rank test: uniform where exactly so many directions change, blind to units and order, honest about its limits."""

import numpy as np
import pytest
from scipy import stats

import latentdag as ld
from latentdag.core import fourth_moments
from latentdag.inference.ranks import rank_test


def change(d, rank):
    """A covariance that differs from the identity plainly, in so many directions, not along the axes."""
    Q = np.linalg.qr(np.random.default_rng(0).standard_normal((d, d)))[0]
    return (Q * np.r_[[6.0, 0.15, 9.0][:rank], np.ones(d - rank)]) @ Q.T


def wishart_p_values(d, n, rank, draws, tested=None):
    """p-values of `tested` (default: the true rank) over draws of two sample covariances."""
    Sigma, p = change(d, rank), []
    rng = np.random.default_rng([d, n, rank])
    for _ in range(draws):
        S = [stats.wishart(n - 1, C, seed=rng).rvs() / (n - 1) for C in (np.eye(d), Sigma)]
        m = ld.Moments.from_covariances(S, n)
        p.append(rank_test(m, rank if tested is None else tested)["p_value"].iloc[0])
    return np.array(p)


@pytest.mark.parametrize(("d", "n", "rank"), [(5, 400, 2), (10, 80, 2), (6, 200, 1), (4, 50, 0)])
def test_p_values_are_uniform_where_exactly_so_many_directions_change(d, n, rank):
    """Also where 80 samples meet ten dimensions: without Bartlett's correction a tenth would be rejected at 5 %."""
    assert stats.kstest(wishart_p_values(d, n, rank, 200), "uniform").pvalue > 0.01


def test_fewer_changes_make_it_conservative_and_more_are_found():
    fewer = wishart_p_values(5, 400, 1, 200, tested=2)
    assert stats.kstest(fewer, "uniform", alternative="greater").pvalue > 0.01  # no smaller than uniform
    assert (wishart_p_values(5, 400, 3, 50, tested=2) < 0.05).mean() > 0.95


def chain(rng, d=4):
    """Z1 → Z2 → …, and a context that hits the last, where both directions show plainly."""
    names = [f"Z{i}" for i in range(d)]
    A = np.diag(np.full(d - 1, 1.5), -1)
    hit = {"k": ld.Intervention(names[-1], variance=6.0)}
    return ld.LatentModel(rng.standard_normal((d, d)), A, np.ones(d), hit, latents=names)


@pytest.mark.parametrize("noise", ["gaussian", "laplace", "exponential", "uniform"])
def test_robust_p_values_are_uniform_whatever_the_noise(noise):
    rng = np.random.default_rng(5)
    robust, gaussian = [], []
    for _ in range(120):
        X, labels = ld.simulate.sample(chain(rng), 600, rng, noise)
        table = rank_test(ld.Moments.from_samples(X, labels, control="control"), data=(X, labels))
        robust.append(table["robust_p_value"].iloc[0])
        gaussian.append(table["p_value"].iloc[0])
    assert stats.kstest(robust, "uniform").pvalue > 0.01
    if noise in ("laplace", "exponential"):
        assert stats.kstest(gaussian, "uniform").pvalue < 1e-4


@pytest.fixture(scope="module")
def samples():
    model = ld.simulate.random_model(4, 6, n_targets=2, rng=2)
    return ld.simulate.sample(model, {c: 300 + 40 * i for i, c in enumerate(model.contexts)}, rng=3, noise="laplace")


NUMBERS = ["statistic", "dof", "p_value", "robust_statistic", "robust_dof", "robust_p_value"]


def test_units_mixtures_and_order_do_not_matter(samples):
    """An invertible map of the features, other units, other orders of features, contexts and rows: the same table."""
    X, labels = samples
    rng = np.random.default_rng(0)
    want = rank_test(ld.Moments.from_samples(X, labels, control="control"), data=(X, labels))
    rows = rng.permutation(len(X))
    for Y, y in (
        (X @ rng.standard_normal((6, 6)), labels),
        (X * 10.0 ** rng.integers(-5, 6, size=6), labels),
        (X[:, rng.permutation(6)], labels),
        (X[rows], labels[rows]),
        (X + 100.0, labels),
    ):
        got = rank_test(ld.Moments.from_samples(Y, y, control="control"), data=(Y, y))
        np.testing.assert_allclose(got[NUMBERS], want[NUMBERS], rtol=1e-6)
    m = ld.Moments.from_samples(X, labels, control="control")
    turned = rank_test(m.select(m.contexts[:0:-1]))
    np.testing.assert_allclose(turned.loc[want.index, NUMBERS[:3]], want[NUMBERS[:3]], rtol=1e-9)


def test_data_may_come_in_pieces_and_blocks(samples, monkeypatch):
    X, labels = samples
    m = ld.Moments.from_samples(X, labels, control="control")
    want = rank_test(m, data=(X, labels))
    monkeypatch.setattr(fourth_moments, "_CHUNK", 50)
    got = rank_test(m, data=[(X[::2], labels[::2]), (X[1::2], labels[1::2])])
    np.testing.assert_allclose(got[NUMBERS], want[NUMBERS], rtol=1e-9)


def test_many_products_are_sketched(monkeypatch):
    rng = np.random.default_rng(1)
    Y = rng.laplace(size=(2, 3000, 12))
    traces = []
    for limit in (fourth_moments.EXACT_UP_TO, 1):
        monkeypatch.setattr(fourth_moments, "EXACT_UP_TO", limit)
        sums = fourth_moments.ProductCovariance((3000, 3000), 12)
        for side in (0, 1):
            sums.add(side, Y[side] - Y[side].mean(axis=0))
        traces.append(sums.traces())
    assert traces[0][0] == pytest.approx(traces[1][0])
    assert traces[0][1] == pytest.approx(traces[1][1], rel=0.05)


def test_rho_is_the_papers():
    model = ld.simulate.random_model(4, 4, rng=0)
    m = ld.simulate.sample_moments(model, 500, rng=0)
    table = rank_test(m)
    for k, context in enumerate(m.contexts[1:], start=1):
        s = np.linalg.svd(np.linalg.inv(m.covariances[k]) - np.linalg.inv(m.covariances[0]), compute_uv=False)
        assert table["rho"][context] == pytest.approx((s[0] ** 2 + s[1] ** 2) / (s**2).sum())
    exact = rank_test(ld.simulate.random_model(4, 7, rng=0).moments())
    np.testing.assert_allclose(exact["rho"], 1.0)
    assert (exact["p_value"] > 0.999).all()


def test_where_there_is_no_test_it_says_why():
    model = ld.simulate.random_model(4, 4, rng=0)
    table = rank_test(ld.simulate.sample_moments(model, {"control": 100, "c1": 4, "c2": 50, "c3": 5, "c4": 9}, rng=0))
    assert np.isnan(table["p_value"]["c1"])
    assert table["reason"]["c1"] == "the context has 4 samples in 4 dimensions; at least 5 are needed"
    assert table["p_value"].drop("c1").between(0, 1).all()
    assert "Gaussian" in table.attrs["note"]
    few = rank_test(ld.simulate.sample_moments(model, {"control": 3, "c1": 9, "c2": 50, "c3": 9, "c4": 9}, rng=0))
    assert few["reason"].str.startswith("the control has 3 samples").all()
    flat = rank_test(ld.simulate.sample_moments(ld.simulate.random_model(2, 3, rng=0), 100, rng=0))
    assert (flat["p_value"] == 1).all()
    assert flat["reason"].str.contains("every change has rank 2 or less").all()


def test_a_do_intervention_takes_one_of_the_two_directions():
    model = ld.simulate.random_model(4, 4, rng=1)
    done = ld.LatentModel(
        model.unmixing, model.weights, model.noise_variance, {"set": ld.Intervention(model.latents[0], "do")},
        latents=model.latents,
    )  # fmt: skip
    X, labels = ld.simulate.sample(done, 500, rng=0)
    assert rank_test(ld.Moments.from_samples(X, labels, control="control"))["p_value"].iloc[0] > 0.01


def test_bad_input(samples):
    X, labels = samples
    m = ld.Moments.from_samples(X, labels, control="control")
    with pytest.raises(ValueError, match="rank must be a whole number, 0 or more, got -1"):
        rank_test(m, rank=-1)
    with pytest.raises(ValueError, match="context 'control' has 299 rows in the data but 300 in the moments"):
        rank_test(m, data=(X[1:], labels[1:]))
    with pytest.raises(ValueError, match="name no control"):
        rank_test(ld.Moments.from_samples(X, labels, control=None))


class TestSingularContexts:
    """Contexts in which a mixture of features is constant: tests say so, or use it, and never raise a raw error."""

    @staticmethod
    def moments(seed, singular):
        model = ld.simulate.random_model(n_latents=4, n_features=4, rng=seed)
        m = ld.simulate.sample_moments(model, 300, rng=seed)
        w = np.random.default_rng(seed).normal(size=4)
        S = m.covariances.copy()
        for c in singular:
            k = m.index(c)
            v = S[k] @ w
            S[k] -= np.outer(v, v) / (w @ v)  # nothing of w'x is left
        return ld.Moments.from_covariances(S, m.counts, m.contexts, m.control, m.means)

    @pytest.mark.parametrize("seed", range(4))
    def test_a_singular_control_has_no_test(self, seed):
        table = rank_test(self.moments(seed, ["control"]))
        assert table["p_value"].isna().all()
        assert table["reason"].str.contains("the control has a singular covariance").all()

    @pytest.mark.filterwarnings("ignore::latentdag.errors.NotConvergedWarning")
    @pytest.mark.parametrize("seed", range(4))
    @pytest.mark.parametrize("singular", [["c1"], ["c1", "c2"], ["control", "c3"]])
    def test_other_tests_and_fits(self, seed, singular):
        m = self.moments(seed, singular)
        assert len(rank_test(m)) == 4
        groups = ld.target_groups(m)
        assert np.isnan(groups.p_values.loc["c1", "c2"]) == (singular == ["c1", "c2"])
        with pytest.raises(
            ValueError, match=f"context '{singular[0]}': the (context|control) has a singular covariance"
        ):
            ld.latent_dimension_test(m)
        assert len(ld.membership_test(m).summary) == 4
        assert set(ld.fit(m).order) == set(m.contexts[1:])
