"""scikit-learn's own checks, and the estimator in the places where people put estimators."""

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_checks

import latentdag as ld
from latentdag.estimator import LatentDAG
from latentdag.uncertainty.held_out import score

FEATURES = [f"g{j}" for j in range(6)]


@pytest.fixture(scope="module")
def samples():
    truth = ld.simulate.random_model(3, 6, density=1, rng=2)
    X, y = ld.simulate.sample(truth, 400, rng=0)
    # noise of every feature's own, so that they have all six dimensions
    return X + 0.05 * np.random.default_rng(1).normal(size=X.shape), y


@pytest.fixture(scope="module")
def fitted(samples):
    return LatentDAG(control="control").fit(*samples)


# ---- scikit-learn's checks ------------------------------------------------------------------------------------------

# The checks bring their own labels, and the control is never guessed. All but these two have a context 0; these have
# the labels 1 and 2, and are run with control=1 below.
LABELS_WITHOUT_ZERO = dict.fromkeys(
    ["check_estimators_dtypes", "check_fit2d_1feature"], "no label 0 in this check's y; passes with control=1"
)


@pytest.mark.filterwarnings("ignore::latentdag.errors.FewSamplesWarning")  # the checks' data are tiny
@pytest.mark.filterwarnings("ignore::latentdag.errors.NotConvergedWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@estimator_checks.parametrize_with_checks([LatentDAG(control=0)], expected_failed_checks=lambda _: LABELS_WITHOUT_ZERO)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.filterwarnings("ignore::latentdag.errors.FewSamplesWarning")
@pytest.mark.filterwarnings("ignore::latentdag.errors.NotConvergedWarning")
@pytest.mark.parametrize("check", LABELS_WITHOUT_ZERO)
def test_checks_without_a_label_zero(check):
    getattr(estimator_checks, check)("LatentDAG", LatentDAG(control=1))


# ---- what it says ---------------------------------------------------------------------------------------------------


def test_it_is_the_fit_of_the_moments(samples, fitted):
    found = ld.fit(ld.Moments.from_samples(*samples, control="control"))
    np.testing.assert_array_equal(fitted.model_.unmixing, found.model.unmixing)
    assert fitted.latents_ == list(found.latents)
    assert fitted.order_ == list(found.order)
    assert set(fitted.graph_.edges) == set(found.graph.edges)
    assert fitted.contexts_ == ["control", "c1", "c2", "c3"]


def test_latents_are_named_after_contexts(samples, fitted):
    assert sorted(fitted.get_feature_names_out()) == ["c1", "c2", "c3"]
    frame = clone(fitted).set_output(transform="pandas").fit_transform(*samples)
    assert list(frame.columns) == fitted.latents_


def test_transform_and_back(samples):
    exact = LatentDAG(control="control", noise="none").fit(*samples)
    Z = exact.transform(samples[0])
    np.testing.assert_allclose(exact.transform(exact.inverse_transform(Z)), Z, atol=1e-9)
    with pytest.raises(ValueError, match="Z has 2 columns, but there are 3 latents"):
        exact.inverse_transform(Z[:, :2])


def test_noisy_features_give_posterior_means(samples):
    """Of noise that was found, latents are shrunken, and less uncertain than their unbiased estimates."""
    noisy = LatentDAG(control="control", noise="auto").fit(*samples)
    model = noisy.model_
    assert model.feature_noise is not None
    Z, unbiased = noisy.transform(samples[0]), (samples[0] - model.offset) @ model.unmixing.T
    assert (Z.std(axis=0) < unbiased.std(axis=0)).all()
    assert (model.latent_std_error > 0).all()


def test_moments_instead_of_samples(samples, fitted):
    m = ld.Moments.from_samples(*samples, control="control", feature_names=FEATURES)
    found = LatentDAG().fit_moments(m)
    np.testing.assert_array_equal(found.model_.unmixing, fitted.model_.unmixing)
    assert list(found.feature_names_in_) == FEATURES
    unnamed = found.fit_moments(ld.Moments.from_samples(*samples, control="control"))
    assert not hasattr(unnamed, "feature_names_in_")
    with pytest.raises(ValueError, match="the moments have the control 'control', the estimator control='c1'"):
        LatentDAG(control="c1").fit_moments(m)
    with pytest.raises(TypeError, match="samples go to fit"):
        LatentDAG().fit_moments(samples[0])


def test_score_is_the_mean_log_density(samples, fitted):
    X, y = samples
    expected = 0.0
    for context in fitted.contexts_:
        law, rows = fitted.model_.law(context), X[y == context]
        gap = rows - law.mean
        log_det = np.linalg.slogdet(2 * np.pi * law.covariance)[1]
        expected += -0.5 * (np.einsum("ij,ij->", gap @ np.linalg.inv(law.covariance), gap) + len(rows) * log_det)
    assert fitted.score(X, y) == pytest.approx(expected / len(X))
    table = score(fitted.fit_, ld.Moments.from_samples(X[y == "c1"], y[y == "c1"], control=None))
    assert fitted.score(X[y == "c1"], y[y == "c1"]) == pytest.approx(table.loc["c1", "model"])  # no control in there


# ---- where data come from -------------------------------------------------------------------------------------------


def kinds_of_table(X):
    pl, pa = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    frame = pd.DataFrame(X, columns=FEATURES)
    return {"pandas": frame, "polars": pl.DataFrame(frame.to_dict("list")), "pyarrow": pa.Table.from_pandas(frame)}


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
def test_tables(samples, fitted, kind):
    X, y = samples
    table = kinds_of_table(X)[kind]
    found = LatentDAG(control="control").fit(table, y)
    np.testing.assert_allclose(found.model_.unmixing, fitted.model_.unmixing, rtol=1e-9)
    assert list(found.feature_names_in_) == FEATURES == list(found.model_.feature_names)
    np.testing.assert_allclose(found.transform(table), fitted.transform(X), rtol=1e-9, atol=1e-9)
    assert found.score(table, y) == pytest.approx(fitted.score(X, y))


def test_labels_as_columns_of_any_kind(samples, fitted):
    pl, pa = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    X, y = samples
    for labels in (pd.Series(y), pd.Categorical(y), pl.Series(list(y)), pa.array(list(y)), list(y)):
        np.testing.assert_array_equal(
            LatentDAG("closed-form", control="control").fit(X, labels).model_.unmixing,
            LatentDAG("closed-form", control="control").fit(X, y).model_.unmixing,
        )


def test_csr(samples, fitted):
    X, y = samples
    found = LatentDAG(control="control").fit(sparse.csr_matrix(X), y)
    np.testing.assert_allclose(found.model_.unmixing, fitted.model_.unmixing, rtol=1e-6)
    np.testing.assert_allclose(found.transform(sparse.csr_array(X)), fitted.transform(X), rtol=1e-5, atol=1e-5)


def test_dask_arrays_stay_lazy(samples, fitted):
    da = pytest.importorskip("dask.array")
    X, y = samples
    lazy = da.from_array(X, chunks=(500, 6))
    Z = fitted.transform(lazy)
    assert isinstance(Z, da.Array)
    np.testing.assert_allclose(Z.compute(), fitted.transform(X))
    with pytest.raises(ValueError, match="is expecting 6 features"):
        fitted.transform(lazy[:, :4])
    found = LatentDAG(control="control").fit(lazy, da.from_array(y, chunks=500))
    np.testing.assert_allclose(found.model_.unmixing, fitted.model_.unmixing, rtol=1e-7)
    assert found.score(lazy, y) == pytest.approx(fitted.score(X, y))


def annotated(samples):
    ad = pytest.importorskip("anndata")
    X, y = samples
    cells = [f"cell{i}" for i in range(len(X))]
    obs = pd.DataFrame({"perturbation": pd.Categorical(y)}, index=cells)
    return ad.AnnData(X.copy(), obs=obs, var=pd.DataFrame(index=FEATURES))


@pytest.mark.filterwarnings("ignore:The .* option is deprecated")  # of anndata with pandas 3
def test_anndata_with_labels(samples, fitted):
    adata = annotated(samples)
    found = LatentDAG(control="control").fit(adata, samples[1])
    np.testing.assert_array_equal(found.model_.unmixing, fitted.model_.unmixing)
    np.testing.assert_allclose(found.transform(adata[:, ::-1]), fitted.transform(samples[0]))  # by name
    with pytest.raises(ValueError, match="obs has no column 'guide'"):
        found.fit(adata, "guide")


@pytest.mark.filterwarnings("ignore:The .* option is deprecated")
def test_anndata_with_a_column_of_obs(samples, fitted):
    adata = annotated(samples)
    found = LatentDAG(control="control").fit(adata, "perturbation")
    np.testing.assert_allclose(found.model_.unmixing, fitted.model_.unmixing)
    assert list(found.feature_names_in_) == FEATURES
    assert found.score(adata[:, ::-1], "perturbation") == pytest.approx(fitted.score(*samples))
    with pytest.raises(ValueError, match=r"needs control=.*'control' \(400\)"):
        LatentDAG().fit(adata, "perturbation")


@pytest.mark.filterwarnings("ignore:The .* option is deprecated")
def test_a_backed_anndata_stays_on_disk(samples, fitted, tmp_path):
    ad = pytest.importorskip("anndata")
    annotated(samples).write_h5ad(tmp_path / "screen.h5ad")
    backed = ad.read_h5ad(tmp_path / "screen.h5ad", backed="r")
    found = LatentDAG(control="control").fit(backed, "perturbation")
    np.testing.assert_allclose(found.transform(backed), fitted.transform(samples[0]), rtol=1e-6, atol=1e-6)
    again = LatentDAG(control="control").fit(backed, samples[1])  # labels that are no column of obs
    np.testing.assert_allclose(again.transform(backed), found.transform(backed))
    backed.file.close()


# ---- where estimators go --------------------------------------------------------------------------------------------


def test_in_a_pipeline(samples):
    X, y = samples
    pipe = make_pipeline(StandardScaler(), LatentDAG(control="control")).set_output(transform="pandas")
    Z = pipe.fit(X, y).transform(X)
    assert list(Z.columns) == list(pipe.get_feature_names_out())
    plain = LatentDAG(control="control").fit(X, y)
    for name in Z:  # units of features do not matter to latents
        assert abs(np.corrcoef(Z[name], plain.transform(X)[:, plain.latents_.index(name)])[0, 1]) > 1 - 1e-9
    assert np.isfinite(pipe.score(X, y))


def test_in_a_grid(samples):
    grid = {"method": ["likelihood", "closed-form"], "penalty": ["bic", 1e6]}
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    search = GridSearchCV(LatentDAG(control="control"), grid, cv=folds, error_score="raise").fit(*samples)
    assert search.best_params_ == {"method": "likelihood", "penalty": "bic"}
    assert search.best_estimator_.graph_.number_of_edges() == 3


def test_in_parallel_processes(samples):
    X, y = samples
    folds = StratifiedKFold(2, shuffle=True, random_state=0)
    found = [cross_val_score(LatentDAG(control="control"), X, y, cv=folds, n_jobs=n) for n in (1, 2)]
    np.testing.assert_allclose(*found)


def test_folds_without_a_context_say_so(samples, fitted):
    X, y = samples
    y = np.where(y == "c3", "c4", y)
    with pytest.raises(ValueError, match=r"no context 'c4'.*'c4' \(400\).*StratifiedKFold"):
        fitted.score(X, y)


def test_copies_travel(samples, fitted):
    other = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(other.transform(samples[0]), fitted.transform(samples[0]))
    assert clone(fitted).get_params() == fitted.get_params()
    with pytest.raises(NotFittedError):
        clone(fitted).transform(samples[0])


def test_html(fitted):
    assert "LatentDAG" in fitted._repr_html_()


# ---- complaints -----------------------------------------------------------------------------------------------------


def test_the_control_is_never_guessed(samples):
    with pytest.raises(
        ValueError, match=r"needs control=.*'c1' \(400\), 'c2' \(400\), 'c3' \(400\), 'control' \(400\)"
    ):
        LatentDAG().fit(*samples)
    with pytest.raises(ValueError, match=r"control 'WT' is not among the contexts.*'c1' \(400\)"):
        LatentDAG(control="WT").fit(*samples)
    with pytest.raises(ValueError, match="y is the context of each row"):
        LatentDAG(control="control").fit(samples[0])


def test_missing_values_are_named(samples):
    X, y = samples[0].copy(), samples[1]
    X[3, 1] = np.nan
    with pytest.raises(ValueError, match=r"contains NaN.*context 'control': 1 values.*'g1', row 3"):
        LatentDAG(control="control").fit(pd.DataFrame(X, columns=FEATURES), y)


def test_options_that_a_method_cannot_honour(samples):
    with pytest.raises(ValueError, match="method 'projection' has no option intervention='soft'"):
        LatentDAG("projection", control="control", intervention="soft").fit(*samples)
    with pytest.raises(ValueError, match="method must be one of 'likelihood'"):
        LatentDAG("magic", control="control").fit(*samples)
    assert LatentDAG("projection", control="control", penalty="aic").fit(*samples).fit_.method == "projection"
