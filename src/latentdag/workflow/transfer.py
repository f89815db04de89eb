"""Latent scores of samples that were measured elsewhere: the unmixing H, applied to another cohort's genes.

A latent is a weighted sum of genes, and the weights hold for expression as the screen measured it. A cohort of tumours
comes from another machine, in other units and with another spread of every gene. What is done about it:

* genes are matched by name, and every gene of the model must be there;
* each gene is centred on the cohort's own mean, since "zero" means nothing across technologies (the paper does this);
* with ``scaling="control"``, the default, each gene is also brought to the standard deviation that it has among the
  screen's control cells, so that a gene counts as much in the cohort as it did in the fit. ``scaling="none"`` leaves
  the cohort's units, as the paper did: genes that vary a lot between patients then dominate, whatever their weight.

Either way a score says how far a patient leans along a direction that was learned in a cell line. That the same latent
exists in a tumour, mixed from the same genes, is an assumption that these data cannot test.
"""

from typing import Any, Literal

import numpy as np
import pandas as pd

from latentdag.model.model import LatentModel


def transfer_scores(
    model: LatentModel, expression: pd.DataFrame, scaling: Literal["control", "none"] = "control"
) -> pd.DataFrame:
    """Return latent scores (samples × latents) of another cohort, each with mean zero and standard deviation one.

    Parameters
    ----------
    model : LatentModel
    expression : DataFrame, samples × genes
        Named as the model's features, on the logarithmic scale; other genes are ignored.
    scaling : "control" or "none"
        See above.

    Raises
    ------
    ValueError
        If genes of the model are missing, do not vary or are not finite in the cohort.
    """
    if scaling not in ("control", "none"):
        raise ValueError(f"scaling must be 'control' or 'none', got {scaling!r}")
    missing = [name for name in model.feature_names if name not in expression.columns]
    if missing:
        raise ValueError(
            f"{len(missing)} of {model.n_features} genes of the model are not in the cohort, first {missing[0]!r}: "
            "choose genes among those of both (latentdag.workflow.choose(among=…))"
        )
    X = expression[list(model.feature_names)].to_numpy(dtype=float)
    if not np.isfinite(X).all():
        raise ValueError("expression of the second cohort has values that are missing or infinite: drop those samples")
    spread = X.std(axis=0, ddof=1)
    if not (spread > 0).all():
        raise ValueError(f"{model.feature_names[int(np.argmin(spread))]!r} does not vary in the second cohort: drop it")
    X = X - X.mean(axis=0)
    if scaling == "control":
        X = X / spread * np.sqrt(np.diagonal(model.covariance()))
    Z = X @ model.unmixing.T
    return pd.DataFrame(Z / Z.std(axis=0, ddof=1), index=expression.index, columns=list(model.latents))


def random_scores(expression: pd.DataFrame, n: int, rng: Any = None) -> pd.DataFrame:
    """Return scores (samples × n) of random mixtures of genes: latents of a fit that had learned nothing.

    Where many genes go with survival, most mixtures of them do too. A latent says something of its own only if it does
    better than these. Genes are standardised and weights are independent standard Gaussians.
    """
    X = expression.to_numpy(dtype=float)
    X = (X - X.mean(axis=0)) / X.std(axis=0, ddof=1)
    Z = X @ np.random.default_rng(rng).normal(size=(X.shape[1], n))
    return pd.DataFrame(Z, index=expression.index, columns=[f"random {j + 1}" for j in range(n)])
