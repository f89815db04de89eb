"""The interferon-γ study: its shuffles and splits are what they say, its sizes are right, and the data say what its page says."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import latentdag as ld
from latentdag.datasets import containers, thp1
from latentdag.inference.ranks import rank_test
from studies.__main__ import main
from studies.interferon import context_tests, fits, screen, tables
from studies.interferon.screen import CASCADE, CONTROL, CORE, Cells

from paths import SHARED

needs_data = pytest.mark.skipif(
    not any((SHARED / folder).is_dir() for folder in thp1.SOURCE.folders),
    reason=f"no {thp1.SOURCE.name} beside the repository; set {containers.ENVIRONMENT} to the folder that has it",
)


def toy(n=600, shift=2.0, rng=0):
    """A screen on the model: the cascade hits the first latent, every other context one of its own."""
    rng = np.random.default_rng(rng)
    G = rng.normal(size=(6, 6))
    X, contexts = [], []
    for context in (CONTROL, *CORE):
        Z = rng.normal(size=(n, 6))
        if context != CONTROL:
            i = 0 if context in CASCADE else CORE.index(context) - 3
            Z[:, i] = 0.4 * Z[:, i] - shift
        X.append(Z @ G.T)
        contexts += [context] * n
    replicates = np.tile(["rep_1", "rep_2"], len(contexts) // 2)
    guides = np.array([f"{c}g{k % 3}" for k, c in enumerate(contexts)])
    return Cells(np.vstack(X), np.array(contexts), guides, replicates, tuple(f"g{j}" for j in range(6)))


def counts(cells):
    return pd.crosstab(cells.contexts, cells.replicates)


def test_shuffles_and_draws_keep_the_numbers_of_cells():
    cells, rng = toy(60), np.random.default_rng(1)
    shuffled = cells.shuffled(rng, [CONTROL, "IRF1"])
    assert counts(shuffled).equals(counts(cells))
    assert counts(cells.resampled(rng)).equals(counts(cells))
    moved = shuffled.contexts != cells.contexts
    assert moved.any()
    assert set(cells.contexts[moved]) == {CONTROL, "IRF1"}
    assert shuffled.X is cells.X


def test_folds_and_splits_share_out_every_cell_once():
    cells = toy(60)
    masks = dict(fits.fold_masks(cells, 5, np.random.default_rng(0)))
    folds = np.array([mask for name, mask in masks.items() if name.startswith("fold")])
    assert (folds.sum(axis=0) == 1).all()
    assert all(set(cells.contexts[mask]) == {CONTROL, *CORE} for mask in folds)
    halves = [part for name, part in fits.splits(cells) if "half" in name]
    assert sum((part.contexts != CONTROL).sum() for part in halves) == (cells.contexts != CONTROL).sum()
    assert not set(halves[0].guides[halves[0].contexts != CONTROL]) & set(
        halves[1].guides[halves[1].contexts != CONTROL]
    )


def test_the_share_is_one_on_the_model_and_less_off_it():
    cells = toy(2_000)
    on = {row["context"]: row for row in context_tests.membership_rows(cells)}
    assert min(row["share"] for row in on.values()) > 0.97
    X = cells.X.copy()
    hit = cells.contexts == "IRF1"
    X[hit] *= 1.5  # every direction changes
    off = {row["context"]: row for row in context_tests.membership_rows(replace(cells, X=X))}
    assert off["IRF1"]["share"] < 0.8
    assert off["IRF1"]["p_robust"] < 1e-6
    assert off["SMAD4"]["share"] == pytest.approx(on["SMAD4"]["share"])


def test_excess_is_what_the_law_adds():
    """On average zero where nothing changes, whatever the noise."""
    rng = np.random.default_rng(0)
    values = []
    for _ in range(40):
        X = rng.standard_t(8, size=(1_200, 3))
        labels = np.repeat(["WT", "A"], 600)
        m = ld.Moments.from_samples(X, labels, control="WT")
        table = rank_test(m, 0, data=(X, labels))
        values.append((context_tests.excess(table).iloc[0], table["statistic"].iloc[0]))
    excess, statistic = np.mean(values, axis=0)
    error = np.std([v[0] for v in values]) / np.sqrt(len(values))
    assert abs(excess) < 3 * error
    assert statistic > 6.5  # the Gaussian mean is 6: without fourth moments there would seem to be a change


def test_on_the_model_pairs_and_predictions_are_right():
    cells = toy()
    pairs = pd.DataFrame(context_tests.pair_rows(cells))
    inside = pairs["context"].isin(CASCADE) & pairs["other"].isin(CASCADE)
    assert pairs["together"].equals(inside)
    assert pairs.loc[inside, "shift_cosine"].min() > 0.98
    assert tables.groups(pairs.assign(genes="toy"))[0]["groups"].split("; ")[0] == ", ".join(CASCADE)
    held_out = dict(fits.fold_masks(cells, 5, np.random.default_rng(0)))["fold 1"]
    scores = pd.DataFrame(fits.score_rows(cells, held_out)).set_index("context").drop(index=CONTROL)
    assert (scores["model"] > scores["additive"]).all()
    assert (scores["model"] - scores["own"]).mean() > 0  # one latent for four contexts is fewer parameters
    assert fits.two_latents(cells)["relation"] == "no edge"
    unseen = pd.DataFrame(fits.unseen_rows(cells, "JAK2"))
    assert (unseen["model"] > unseen["control"] + 1).all()


@needs_data
def test_gene_sets_use_no_labels(monkeypatch):
    monkeypatch.setenv(containers.ENVIRONMENT, str(SHARED))
    sets = screen.gene_sets()
    assert {name: cells.X.shape[1] for name, cells in sets.items()} == {
        name: n for name, (_, n) in screen.GENE_SETS.items()
    }
    main = sets["variable 20"]
    assert set(sets["variable 10"].genes) < set(main.genes)
    assert not {*CORE, "NFKBIA"} & set(sets["no targets 40"].genes)
    assert {"STAT1", "JAK2", "UBE2L6", "IFNGR2"} < set(main.genes)
    by_guide = pd.DataFrame({"guide": main.guides, "context": main.contexts}).drop_duplicates()
    assert by_guide["guide"].is_unique  # guides stayed beside their cells
    assert all(g.startswith(c) for g, c in by_guide.itertuples(index=False) if c in CORE)
    # replicates were regressed out within contexts
    within = pd.DataFrame(main.X).groupby([main.contexts, main.replicates]).mean()
    control = within.loc[CONTROL]
    assert (control.max() - control.min()).max() < 0.25


@needs_data
@pytest.mark.slow
def test_the_study_says_what_the_data_say(monkeypatch, tmp_path):
    monkeypatch.setenv(containers.ENVIRONMENT, str(SHARED))
    assert main(["interferon", "--quick", "--models", "2", "--out", str(tmp_path)]) == 0
    folder = tmp_path / "interferon"
    said = json.loads((folder / "summary.json").read_text())
    assert all(said["tables"].values())
    page = (folder / "README.md").read_text()
    assert all(sentence in page for sentence in said["findings"])
    assert {path.stem for path in folder.glob("*.svg")} == {
        "eigenvalues", "graph", "held-out", "loadings", "same-latent", "which-first",
    }  # fmt: skip
    found = {title: pd.DataFrame(table) for title, table in said["tables"].items()}
    fit = found["Does each context fit the model"].set_index("context")
    assert set(fit.index[fit["verdict"] == "does not fit"]) == {"IFNGR1", "IFNGR2", "JAK2"}
    assert fit.loc["SMAD4", "verdict"] == "fits"
    pairs = found["Which contexts hit the same latent"]
    inside = pairs["context"].isin(CASCADE) & pairs["other"].isin(CASCADE)
    assert pairs.loc[inside, "cosine"].min() > 0.9
    assert pairs.loc[inside, "Holm"].min() > 0.05
    to_irf1 = (pairs["other"] == "IRF1") & pairs["context"].isin(CASCADE)
    assert pairs.loc[to_irf1, "Holm"].max() < 0.05
    scores = found["Held-out cells"]
    cascade = scores[scores["context"].isin(CASCADE)]
    assert (cascade["over control"] > 1).all()
    assert (cascade["over additive"] > 0).all()


@pytest.mark.slow
@needs_data
def test_off_the_model_the_search_is_no_worse_than_a_given_order(monkeypatch):
    """Several contexts on one target had a single start, which ended 44 nats below this order."""
    monkeypatch.setenv(containers.ENVIRONMENT, str(SHARED))
    m = screen.gene_sets()["variable 20"].of(CORE).moments()
    order = ("UBE2L6", "SMAD4", "IRF1", "cascade")
    given = ld.fit(m, targets=fits.targets(m.contexts), order=order)
    assert fits.fitted(m).bic < given.bic + 1
