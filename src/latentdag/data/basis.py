"""Dimensions that all contexts share: a few numbers per row that hold what latents do, chosen in a first pass.

Covariances of K contexts in p features take 8 K p² bytes. But latents that a screen perturbs make features vary
*together*, and shift means in the same directions, so a few combinations ``y = W (x − center)`` hold what the contexts
say about them, and a second pass needs 8 K r² bytes. The first pass gives the covariance within contexts, pooled over
them, and their means. In units of the features' deviations within contexts, with C their correlations, two kinds of
directions are taken (docs/math.md, Dimensions that all contexts share):

* eigenvectors of C. Their span is invariant under C, so that it holds ``Σ⁻¹ G``, the rows of H, where it holds G;
* directions in which means differ by more than the largest noise of means does, in what the eigenvectors leave.

Where features have noise of their own, factors take the place of eigenvectors: the factor step of a fit, from what all
contexts have in common (:mod:`latentdag.core.factors`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Literal

import numpy as np
from scipy import linalg

from latentdag.core.factors import FactorModel, FactorProblem
from latentdag.core.linalg import RANK_TOLERANCE
from latentdag.data.accumulate import Sums, add_gram, mirror_lower
from latentdag.data.adjust import RANK_TOLERANCE as LEAST_VARIANCE
from latentdag.data.adjust import residual_covariances, solved
from latentdag.data.matrices import as_dense, is_sparse
from latentdag.data.sources.reader import Mapped, Reader

#: Features up to which all eigenvectors are factored; iterations where there are more; eigenvectors looked at first.
EXACT, ITERATIONS, FIRST = 2000, 20, 64

#: Quantile of Tracy and Widom's law of the largest eigenvalue that noise exceeds once in a hundred times.
ONE_IN_A_HUNDRED = 2.02

#: Share of a feature's variance that dimensions leave and that is more than rounding.
LEAST_REST = 1e-9

#: Relative growth of the likelihood of factors, per sample, at which scoring takes over.
ROUGHLY = 1e-3

#: How names of a basis's arrays begin in files, and how exactly they must fit together there.
PREFIX, SAME = "basis_", 1e-6

Rank = int | Literal["auto"]


def layout(r: str, p: str) -> dict[str, str]:
    """Return what a file holds of a basis, for :class:`latentdag.data.schema.Layout`; letters are its sizes."""
    shapes = {"W": f"f {r}{p}", "back": f"f {p}{r}", "center": f"f {p}", "rest": f"f {p}", "psi": f"f {p}"}
    return {f"{PREFIX}{name}?": form for name, form in {**shapes, "at_floor": f"b {p}"}.items()}


@dataclass(frozen=True, eq=False)
class Basis:
    """Shared dimensions of features, and the way back.

    Attributes
    ----------
    W : (r, p)
        ``y = W (x − center)``
    back : (p, r)
        Features of the dimensions, by least squares: ``W back = I``.
    center : (p,)
        The mean of all rows.
    rest : (p,)
        Variance of each feature within contexts that the dimensions leave.
    psi : (p,), or None
        Noise variances of the features, where the dimensions are factors of noisy ones.
    at_floor : (p,) bool, or None
        Features whose noise was at its floor.
    feature_names : tuple of str
    """

    W: np.ndarray
    back: np.ndarray
    center: np.ndarray
    rest: np.ndarray
    feature_names: tuple[str, ...]
    psi: np.ndarray | None = None
    at_floor: np.ndarray | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the dimensions."""
        return tuple(f"dimension {i + 1}" for i in range(len(self.W)))

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays that are there, named as in files."""
        found = {PREFIX + each.name: getattr(self, each.name) for each in fields(self) if each.name != "feature_names"}
        return {name: value for name, value in found.items() if value is not None}

    def noise(self, n_contexts: int, apart: np.ndarray | None) -> np.ndarray | None:
        """Return the covariances of the noise (K, r, r) of factors, or None if features are exact.

        ``apart`` (K, p) is how far noise variances of counts are from their mean.
        """
        if self.psi is None:
            return None
        N = np.repeat(np.eye(len(self.W))[None], n_contexts, axis=0)
        return N if apart is None else N + np.stack([(self.W * extra) @ self.W.T for extra in apart])

    @property
    def log_volume(self) -> float:
        """log of the volume of the dimensions per volume of the features' range; zero where that is larger."""
        return 0.0 if self.rest.any() else 0.5 * float(np.linalg.slogdet(self.W @ self.W.T)[1])

    @classmethod
    def of(cls, arrays: Mapping[str, np.ndarray], names: Sequence[str] | None) -> "Basis | None":
        """Return the basis among the arrays of a file, if there is one; ``ValueError`` if it is none."""
        found = {name.removeprefix(PREFIX): value for name, value in arrays.items() if name.startswith(PREFIX)}
        if not found and names is None:
            return None
        missing = {"W", "back", "center", "rest"} - set(found)
        if missing or names is None or ("psi" in found) != ("at_floor" in found):
            raise ValueError("parts of the basis are missing")
        if not np.abs(found["W"] @ found["back"] - np.eye(len(found["W"]))).max() < SAME:
            raise ValueError("basis_back does not lead back from basis_W")
        positive = (found.get("psi", found["rest"] + 1) > 0).all()
        if not (positive and all(np.isfinite(value).all() for value in found.values())):
            raise ValueError("the basis holds values that are not finite, or noise that is not positive")
        return cls(feature_names=tuple(names), **found)

    def same(self, other: "Basis | None") -> bool:
        """Return True if both have the same dimensions of the same features, to the last digit."""
        if other is None or self.feature_names != other.feature_names:
            return False
        mine, theirs = self.arrays(), other.arrays()
        return mine.keys() == theirs.keys() and all(np.array_equal(mine[name], theirs[name]) for name in mine)

    def coordinates(self, rows: Any) -> np.ndarray:
        """Return the dimensions (n, r) of rows (n, p), dense or csr."""
        if is_sparse(rows):
            return np.asarray(rows @ self.W.T) - self.W @ self.center
        return np.asarray((as_dense(rows) - self.center) @ self.W.T)

    def reader(self, reader: Reader, step: int) -> Reader:
        """Return a reader of the features, ``step`` rows at a time, as one of the dimensions."""
        return Mapped(reader, partial(_coordinates, self), self.names, np.empty((reader.n_rows, 0)), step)


def _coordinates(basis: Basis, rows: Any, _: np.ndarray) -> np.ndarray:
    return basis.coordinates(rows)


def check_rank(rank: Any, p: int) -> None:
    """Complain about a rank that is none, or larger than the number of features."""
    if rank == "auto" or (isinstance(rank, int | np.integer) and not isinstance(rank, bool) and 0 < rank <= p):
        return
    raise ValueError(
        f"rank must be 'auto', a number of dimensions from 1 to the {p:,} features, or the basis of other moments "
        f"(m.basis), got {rank!r}"
    )


@dataclass(frozen=True, eq=False)
class Shared:
    """What all contexts have in common: the result of the first pass, in units of the features' deviations.

    Attributes
    ----------
    C : (p, p) correlations within contexts, pooled
    away : (K, p)
        Distances of the contexts' means from the mean of all rows, times the root of their share of the rows.
    scale : (p,) deviations of the features within contexts; one where there is none
    center : (p,)
        The mean of all rows.
    n : (K,) rows of each context
    counting : (K, p) noise variances of counts in each context, or None
    """

    C: np.ndarray
    away: np.ndarray
    scale: np.ndarray
    center: np.ndarray
    n: np.ndarray
    counting: np.ndarray | None = None

    @property
    def N(self) -> int:
        return int(self.n.sum())

    def counting_apart(self) -> np.ndarray | None:
        """Return how far noise variances (K, p) of counts are from their mean over all rows."""
        return None if self.counting is None else self.counting - self.n @ self.counting / self.N

    @classmethod
    def of(cls, sums: Sums, n: np.ndarray, p: int, divided: bool) -> "Shared":
        """Return what sums over all rows and the contexts' totals tell; the scatter is used up.

        Parameters
        ----------
        sums : of p features, then covariates; if ``divided``, the last one is 1 / depth
        n : (K,) rows of each context
        """
        S, N, size = sums.scatters[0], int(n.sum()), sums.scatters.shape[1]
        totals, varied = sums.totals / n[:, None], np.diagonal(S) / N
        center = sums.means[0].sum(axis=0)
        away = totals[:, :size] - center
        add_gram(np.sqrt(n)[:, None] * away, S, -1.0)
        mirror_lower(S)
        S /= max(N - len(n), 1)
        varies = np.diagonal(S) > LEAST_VARIANCE * varied
        if size - divided > p:
            c = np.arange(p, size - divided)[varies[p : size - divided]]
            beta = solved(S[np.ix_(c, c)], S[c, :p])
            S = residual_covariances(S[np.ix_([*range(p), *c], [*range(p), *c])][None], beta)[0]
            away = away[:, :p] - away[:, c] @ beta
        S = np.ascontiguousarray(S[:p, :p])
        scale = np.sqrt(np.where(varies[:p], np.diagonal(S), np.inf))
        S /= scale
        S /= scale[:, None]
        away = np.sqrt(n / N)[:, None] * away[:, :p] / scale
        scale = np.where(varies[:p], scale, 1.0)
        return cls(S, away, scale, center[:p], n, totals[:, size:] if divided else None)

    def basis(self, rank: Rank, noisy: bool, names: Sequence[str]) -> Basis:
        """Return the dimensions that hold what contexts share; factors, if features are noisy."""
        V = self.directions(rank)
        if not V.shape[1]:
            raise ValueError(
                "nothing that varies together, or differs between contexts, stands out of what independent features "
                "would show by chance: name a rank if you know better"
            )
        if noisy:
            return self._factors(V, tuple(names))
        V = V * np.where(V[np.abs(V).argmax(axis=0), np.arange(V.shape[1])] < 0, -1.0, 1.0)
        CV = self.C @ V
        back = np.linalg.solve(V.T @ CV, CV.T).T
        left = np.diagonal(self.C) - np.einsum("ij,ij->i", back, CV)
        rest = np.where(left > LEAST_REST, left, 0.0) * self.scale**2
        W, back = V.T / self.scale, self.scale[:, None] * back
        if not rest.any():  # of all maps that say the same, the one within the features' range
            W = np.linalg.pinv(back)
        return Basis(W, back, self.center, rest, tuple(names))

    def directions(self, rank: Rank) -> np.ndarray:
        """Return orthonormal directions (p, r): those of most variance, and those in which means differ beside them."""
        p, free = len(self.C), self.N - len(self.n)
        edge = largest_of_noise(free, p) / free
        k = FIRST if rank == "auto" else rank + 1
        w, V = leading(self.C, k)
        while rank == "auto" and len(w) < p and w[-1] > edge:
            w, V = leading(self.C, k := 2 * k)
        if rank == "auto":
            edge = self._edge(w[w > edge])
        kept = w > (edge if rank == "auto" else RANK_TOLERANCE * w[0])
        w, V = w[kept], V[:, kept]
        if rank == "auto":
            beside, means = self._differing(V, edge)
            return np.hstack([V, means[:, :beside]])
        if len(w) <= rank:
            return V  # nothing is left beside them
        beside = min(self._differing(V[:, :rank], w[rank])[0], rank)
        V = V[:, : rank - beside]
        return np.hstack([V, self._differing(V, w[rank])[1][:, :beside]])

    def _edge(self, above: np.ndarray) -> float:
        """Return the eigenvalue that noise exceeds once in a hundred times; ``above`` are those that no noise seems.

        Rows that differ in how noisy they are, as those of counts do, spread eigenvalues as fewer equal rows would: so
        few that the squares of all others have this mean.
        """
        p, rest = len(self.C), len(self.C) - len(above)
        mean = max(np.trace(self.C) - above.sum(), 0.0) / max(rest, 1)
        square = max(np.vdot(self.C, self.C) - np.square(above).sum(), 0.0) / max(rest, 1)
        spread = square / mean**2 - 1 if mean > 0 else 0.0
        n = int(min(self.N - len(self.n), p / max(spread, 1e-9)))
        return largest_of_noise(n, p) / max(n, 1)

    def _differing(self, V: np.ndarray, largest: float) -> tuple[int, np.ndarray]:
        """Return in how many directions beside V means differ by more than noise, and directions (p, K), those first.

        ``largest`` is the largest variance beside V.
        """
        (K, p), beside = self.away.shape, self.away - (self.away @ V) @ V.T
        s2, U = np.linalg.eigh(beside @ beside.T)
        found = beside.T @ U[:, ::-1]
        found /= np.maximum(np.linalg.norm(found, axis=0), np.finfo(float).tiny)
        return int((s2 > largest * largest_of_noise(K, p) / self.N).sum()), found

    def _factors(self, V: np.ndarray, names: tuple[str, ...]) -> Basis:
        """Return factors of features with noise of their own, by maximum likelihood from what contexts share.

        As many as there are directions V (p, r), where the search begins.
        """
        r, still = V.shape[1], np.flatnonzero(np.diagonal(self.C) < 0.5)
        if len(still) or r >= len(names):
            what = f"feature {names[still[0]]!r} does not vary" if len(still) else f"{r} factors need more features"
            raise ValueError(f"{what}, so its noise cannot be found: leave it out, or take a lower rank")
        least = None if self.counting is None else self.n @ self.counting / self.N / self.scale**2
        problem = FactorProblem(np.array([float(self.N)]), self.C[None], self.away.T @ self.away, least)
        signal = np.maximum(np.einsum("pi,pi->i", V, self.C @ V) - 1, 0.0)
        psi = np.clip(1 - np.square(V) @ signal, np.exp(problem.low), np.exp(problem.high))
        start = FactorModel(-np.inf, psi, np.linalg.qr(V / np.sqrt(psi)[:, None])[0], np.zeros(len(psi), dtype=bool))
        found = problem.polish(problem.fit(r, start, ROUGHLY / self.N))
        psi = found.psi * self.scale**2
        back = np.sqrt(psi)[:, None] * found.Q
        return Basis(found.W / self.scale, back, self.center, psi, names, psi, found.at_floor)


def leading(C: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the k largest eigenvalues of C (p, p), the largest first, and their eigenvectors (p, k).

    Of a large matrix by iteration on twice as many vectors, which a factorisation would take minutes for.
    """
    p = len(C)
    k = min(k, p)
    if p <= EXACT or 4 * k > p:
        w, V = linalg.eigh(C, subset_by_index=(p - k, p - 1))
        return w[::-1], V[:, ::-1]
    X = np.random.default_rng(0).standard_normal((p, 2 * k))
    for _ in range(ITERATIONS):
        X = np.linalg.qr(C @ X)[0]
    w, U = np.linalg.eigh(X.T @ (C @ X))
    return w[: k - 1 : -1], X @ U[:, : k - 1 : -1]


def largest_of_noise(n: int, p: int) -> float:
    """Return what the largest eigenvalue of ``XᵀX`` exceeds once in a hundred times, X (n, p) standard normal.

    Johnstone (2001).

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(2000, 100))
    >>> bool(np.linalg.eigvalsh(X.T @ X)[-1] < largest_of_noise(2000, 100) < 1.02 * (2000**0.5 + 10) ** 2)
    True
    """
    a, b = np.sqrt(max(n - 0.5, 0.5)), np.sqrt(p - 0.5)
    return float((a + b) ** 2 + ONE_IN_A_HUNDRED * (a + b) * (1 / a + 1 / b) ** (1 / 3))
