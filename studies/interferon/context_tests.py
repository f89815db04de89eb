"""Tests of the interferon-γ study: does a context fit the model, and do two contexts hit the same latent?

A p-value says whether a difference can be seen, not how large it is; with many cells every difference is seen. So every
test stands beside a size. Twice the log-likelihood ratio, T, exceeds its mean t under the null by what the law behind
the cells adds. Here t comes from fourth moments, so it holds for cells that are not Gaussian. Then

    share = 1 − (T_2 − t_2) / (T_0 − t_0)

is the part of a context's change that the two directions of a single target can hold: 1 if the model is right.
"""

from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from scipy import linalg

from latentdag import Moments, rank_test, target_groups
from latentdag.experiments import Row
from studies.interferon.screen import CASCADE, CONTROL, CORE, Cells

#: Guides with fewer cells say too little about a shift.
GUIDE_CELLS = 60


def excess(table: pd.DataFrame) -> pd.Series:
    """Return by how much the statistic of each rank test exceeds its mean under the null."""
    return table["statistic"] * (1 - table["robust_dof"] / table["robust_statistic"])


def membership_rows(cells: Cells) -> list[Row]:
    """Test every context against the control: p-values, and how far off two directions are."""
    m = cells.moments()
    any_change, beyond = (rank_test(m, rank, data=cells.data) for rank in (0, 2))
    size, rest = excess(any_change), excess(beyond).clip(lower=0)
    return [
        {
            "context": str(c),
            "n": int(m.counts[m.index(c)]),
            "p_change": float(any_change["robust_p_value"][c]),
            "p_gaussian": float(beyond["p_value"][c]),
            "p_robust": float(beyond["robust_p_value"][c]),
            "rho": float(beyond["rho"][c]),
            "share": float(1 - rest[c] / size[c]) if size[c] > 0 else None,
            "nats_change": float(size[c] / 2 / m.counts[m.index(c)]),
            "nats_beyond": float(rest[c] / 2 / m.counts[m.index(c)]),
        }
        for c in m.contexts[1:]
    ]


def spectrum_rows(cells: Cells, context: str, draws: int, rng: np.random.Generator) -> list[Row]:
    """Return eigenvalues of one context against the control; their band, and the tests' size, under shuffled labels."""
    here = cells.of([context])
    ends, rejects = [], []
    for _ in range(draws):
        null = here.shuffled(rng, [context, CONTROL])
        m = null.moments()
        values = eigenvalues(m)
        ends.append((values.min(), values.max()))
        tests = [rank_test(m, rank, data=null.data).iloc[0] for rank in (0, 2)]
        rejects.append([tests[0]["p_value"] < 0.05, *(test["robust_p_value"] < 0.05 for test in tests)])
    low, high = np.quantile([end[0] for end in ends], 0.025), np.quantile([end[1] for end in ends], 0.975)
    sizes = np.mean(rejects, axis=0)
    shared = {
        "context": context, "low": float(low), "high": float(high), "size_change_gaussian": float(sizes[0]),
        "size_change": float(sizes[1]), "size_two": float(sizes[2]),
    }  # fmt: skip
    return [{**shared, "place": i, "value": float(v)} for i, v in enumerate(eigenvalues(here.moments()))]


def eigenvalues(m: Moments) -> np.ndarray:
    """Return the generalised eigenvalues, (p,), of the only context against the control, smallest first."""
    return np.asarray(linalg.eigh(m.covariances[1], m.covariances[0], eigvals_only=True))


def pair_rows(cells: Cells) -> list[Row]:
    """Compare every two core contexts: how alike they are, and whether one exact target is ruled out."""
    cells = cells.of(CORE)
    rows = []
    for row in alike_rows(cells.moments()):
        both = cells.take(np.isin(cells.contexts, [row["context"], row["other"]]))
        pair = both.moments(control=row["context"])
        tests = {rank: rank_test(pair, rank, data=both.data) for rank in (0, 1)}
        nats = {rank: float(max(excess(test).iloc[0], 0.0) / 2 / pair.counts.min()) for rank, test in tests.items()}
        p_values = {"p_gaussian": tests[1]["p_value"].iloc[0], "p_robust": tests[1]["robust_p_value"].iloc[0]}
        rows.append({**row, **p_values, "nats_apart": nats[0], "nats_beyond": nats[1]})
    return rows


def pair_draw(cells: Cells, rng: np.random.Generator) -> list[Row]:
    """Compute the cosines again, of cells drawn again."""
    return alike_rows(cells.of(CORE).resampled(rng).moments())


def alike_rows(m: Moments) -> list[Row]:
    """Return for every two core contexts the cosines of noise rows and of shifts, and whether they are in one group."""
    found, shifts = target_groups(m), shift_cosines(m)
    group = {c: g for g, members in enumerate(found.groups) for c in members}
    return [
        {
            "context": a,
            "other": b,
            "cosine": float(found.cosines.loc[a, b]),
            "shift_cosine": float(shifts.loc[a, b]),
            "together": bool(group[a] == group[b]),
        }
        for a, b in combinations(CORE, 2)
    ]


def guide_rows(cells: Cells) -> list[Row]:
    """Return cosines between shifts of single guides, within one gene and between genes.

    Shifts of two guides share the error of the control's mean, so each guide gets a random half of the control.
    """
    cells = cells.of((*CASCADE, "IRF1"))
    halves = np.random.default_rng(0).integers(0, 2, len(cells.X))
    control = cells.contexts == CONTROL
    W = np.linalg.inv(np.linalg.cholesky(np.cov(cells.X[control].T)))
    gene_of = dict(zip(cells.guides[~control], cells.contexts[~control], strict=True))
    counts = pd.Series(cells.guides[~control]).value_counts()
    guides = sorted(counts.index[counts >= GUIDE_CELLS])
    base = [cells.X[control & (halves == h)].mean(axis=0) for h in (0, 1)]
    means = {g: cells.X[cells.guides == g].mean(axis=0) for g in guides}
    rows = []
    for a, b in combinations(guides, 2):
        u, v = W @ (means[a] - base[0]), W @ (means[b] - base[1])
        cosine = float(u @ v / np.linalg.norm(u) / np.linalg.norm(v))
        rows.append({"context": gene_of[a], "other": gene_of[b], "guides": f"{a}, {b}", "shift_cosine": cosine})
    return rows


def shift_cosines(m: Moments) -> pd.DataFrame:
    """Return cosines between the contexts' shifts of the mean, where the control has unit covariance.

    Two contexts on one latent shift the mean along one line, whatever the transformation of the features; those of two
    latents need not be orthogonal.
    """
    W = np.linalg.inv(np.linalg.cholesky(m.covariances[0]))
    D = (m.means[1:] - m.means[0]) @ W.T
    D = D / np.linalg.norm(D, axis=1, keepdims=True)
    names: Any = [str(c) for c in m.contexts[1:]]
    return pd.DataFrame(D @ D.T, index=names, columns=names)
