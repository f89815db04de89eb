"""Survival: the table is what lifelines says when it is called directly, and false-discovery rates are Benjamini's."""

import sys

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from latentdag.workflow.survival import cox_table

lifelines = pytest.importorskip("lifelines")
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def patients():
    """Hazards that depend on "risk" and on "age", with censoring."""
    rng = np.random.default_rng(0)
    names = [f"p{i}" for i in range(300)]
    scores = pd.DataFrame(rng.normal(size=(300, 4)) * [1, 5, 0.1, 1] + 3, index=names, columns=["risk", "a", "b", "c"])
    age = pd.DataFrame({"age": rng.normal(size=300)}, index=names)
    death = rng.exponential(np.exp(-0.7 * (scores["risk"] - 3) - 0.5 * age["age"]))
    left = rng.exponential(1.5, size=300)
    survival = pd.DataFrame({"time": np.minimum(death, left) + 1e-6, "event": (death <= left).astype(int)}, index=names)
    return scores, survival, age


@pytest.mark.parametrize("adjusted", [False, True])
def test_the_table_is_what_lifelines_says(patients, adjusted):
    scores, survival, age = patients
    table = cox_table(scores, survival, covariates=age if adjusted else None)
    for name in scores:
        direct = scores[[name]] / scores[name].std()
        direct = direct.join(age) if adjusted else direct
        fitted = lifelines.CoxPHFitter().fit(direct.join(survival), "time", event_col="event").summary.loc[name]
        for ours, theirs in {
            "coef": "coef", "std_error": "se(coef)", "hazard_ratio": "exp(coef)", "lower": "exp(coef) lower 95%",
            "upper": "exp(coef) upper 95%", "z": "z", "p_value": "p",
        }.items():  # fmt: skip
            assert table.loc[name, ours] == pytest.approx(fitted[theirs], rel=1e-6), ours
    assert table.loc["risk", "coef"] == pytest.approx(0.7, abs=0.25)
    assert table["significant"]["risk"]
    assert table.attrs["events"] == survival["event"].sum()


def test_q_values_are_benjamini_and_hochbergs(patients):
    scores, survival, _ = patients
    table = cox_table(scores, survival, alpha=0.3)
    p = table["p_value"].to_numpy()
    assert np.allclose(table["q_value"], stats.false_discovery_control(p))
    order = np.argsort(p)  # and by hand: the smallest p·m/rank from each rank on
    by_hand = np.minimum.accumulate((p[order] * len(p) / np.arange(1, len(p) + 1))[::-1])[::-1]
    assert np.allclose(table["q_value"].to_numpy()[order], np.minimum(by_hand, 1))
    assert (table["significant"] == (table["q_value"] < 0.3)).all()


def test_neither_unit_nor_sign_matters_to_the_p_value(patients):
    scores, survival, _ = patients
    table, turned = cox_table(scores, survival), cox_table(-1000 * scores + 7, survival)
    assert np.allclose(table["p_value"], turned["p_value"], rtol=1e-6)
    assert np.allclose(table["hazard_ratio"], 1 / turned["hazard_ratio"], rtol=1e-6)


@pytest.mark.slow
def test_under_the_null_p_values_are_uniform():
    rng = np.random.default_rng(1)
    names = [f"p{i}" for i in range(150)]
    survival = pd.DataFrame({"time": rng.exponential(size=150), "event": rng.integers(0, 2, 150)}, index=names)
    scores = pd.DataFrame(rng.normal(size=(150, 80)), index=names)
    table = cox_table(scores, survival)
    assert stats.kstest(table["p_value"], "uniform").pvalue > 0.01
    assert stats.kstest(table["proportional_p_value"], "uniform").pvalue > 0.01
    assert not table["significant"].any()


def test_hazards_that_change_with_time_are_seen():
    rng = np.random.default_rng(2)
    names = [f"p{i}" for i in range(400)]
    score = rng.integers(0, 2, 400).astype(float)
    time = np.where(score > 0, 0.7 + 0.05 * rng.normal(size=400), rng.exponential(size=400) + 0.01)
    survival = pd.DataFrame({"time": np.maximum(time, 0.01), "event": 1}, index=names)
    assert cox_table(pd.DataFrame({"s": score}, index=names), survival)["proportional_p_value"].iloc[0] < 0.01


def test_scores_that_cannot_be_fitted_are_left_blank(patients):
    scores, survival, _ = patients
    table = cox_table(scores.assign(flat=1.0), survival)
    assert table.loc["flat"].drop("significant").isna().all()
    assert not table["significant"]["flat"]
    assert np.allclose(table["q_value"].drop("flat"), cox_table(scores, survival)["q_value"])


def test_no_scores_give_an_empty_table(patients):
    table = cox_table(patients[0].iloc[:, :0], patients[1])
    assert table.shape == (0, cox_table(patients[0].iloc[:, :1], patients[1]).shape[1])


def test_complaints_say_what_is_wrong(patients):
    scores, survival, age = patients
    for table, said in (
        (survival.drop(columns="event"), "needs the columns"), (survival.iloc[::-1], "different patients"),
        (survival.assign(time=0.0), "no positive time"), (survival.assign(event=2), "events are 1"),
        (survival.assign(event=0), "0 events among 300"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=said):
            cox_table(scores, table)
    with pytest.raises(ValueError, match="'a' is missing or infinite"):
        cox_table(scores.assign(a=np.nan), survival)
    with pytest.raises(ValueError, match="probabilities"):
        cox_table(scores, survival, alpha=2)
    with pytest.raises(ValueError, match="more than once"):
        cox_table(scores.set_axis(list("aabc"), axis=1), survival)
    with pytest.raises(ValueError, match="scores and covariates"):
        cox_table(scores, survival, covariates=age.iloc[1:])


def test_without_lifelines_the_message_names_the_extra(patients, monkeypatch):
    monkeypatch.setitem(sys.modules, "lifelines", None)
    with pytest.raises(ImportError, match=r"latentdag\[survival\]"):
        cox_table(patients[0], patients[1])
