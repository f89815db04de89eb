"""Raw counts, recognised by what they look like.

Their variance follows their mean, and their depth is in every covariance: the model would find the depth. Counts are
whole numbers from 0 on with a long tail. Indicators have no values beyond 1, grades and codes end soon or have no tail,
and readings of an instrument seldom reach 0: those are no counts to be warned of.
"""

import warnings
from typing import Any

import numpy as np

from latentdag.data.rows import is_sparse
from latentdag.errors import RawCountsWarning

#: Features that never go beyond this are indicators or grades, and counts go beyond the second in some feature.
GRADES, FEW = 2, 5

#: The largest of the counts of a feature, in units of their mean.
TAIL = 3.0


def warn_of_counts(rows: Any, name: str) -> None:
    """Warn if rows (n, p), dense or sparse, look like raw counts."""
    if looks_like_counts(rows):
        warnings.warn(
            f"{name} looks like raw counts (whole numbers from 0 to {rows.max():g} with a long tail): divide each row "
            "by its depth and take log1p first, or the depth will be found as a latent",
            RawCountsWarning,
            stacklevel=4,
        )


def looks_like_counts(rows: Any) -> bool:
    """Whether all values are whole and none negative, and most features go from 0 to several times their mean."""
    values = rows.data if is_sparse(rows) else rows
    if rows.shape[0] == 0 or (values < 0).any() or (np.floor(values) != values).any():
        return False
    lowest, highest = (np.ravel(m.toarray() if is_sparse(m) else m) for m in (rows.min(axis=0), rows.max(axis=0)))
    mean = np.ravel(rows.mean(axis=0))
    counted = highest > GRADES
    tailed = (lowest == 0) & (highest >= TAIL * mean)
    return bool(highest.max() > FEW and tailed[counted].mean() > 0.5)
