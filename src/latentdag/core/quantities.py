"""What users ask about, as functions of the parameters: values and gradients, in any scaling of the rows.

Scaling divides latent i by ``s_i``. H_ij then goes with ``1/s_i``, a weight or total effect of j on i with
``s_j/s_i``, an entry B_ij with ``s_j``, a noise variance with ``1/s_i²``, the scale λ of an intervened noise with
``s_i`` and a shift with ``1/s_i``. So every quantity is ``f · s_i^a · s_j^b`` with f a function of the parameters of
:mod:`latentdag.core.uncertainty`, and only three gradients of ``log s_i`` are needed:

* "paper": s_i is the largest entry of row i of H, its column held fixed, ``d log s_i = dH_ip / H_ip``;
* "unit-norm": ``d log s_i = h_i · dh_i / ‖h_i‖²``;
* "unit-variance": with ``V = B_0^{-1} B_0^{-T}``, ``d log s_i = −(B_0^{-1} β V)_ii / V_ii``.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from latentdag.core.covariance import Gradient
from latentdag.core.linalg import Array, BoolArray, IntArray
from latentdag.core.uncertainty import Point

#: Quantities by name; the last needs means.
NAMES = ("unmixing", "structural", "weight", "total_effect", "scale", "noise_variance", "shift")


@dataclass(frozen=True, eq=False)
class Block:
    """Some values of one quantity: row and column indices (m,), values (m,) and gradients.

    For "scale" and "shift" rows are intervened mechanisms, and columns the latents they act on.
    """

    rows: IntArray
    columns: IntArray
    estimate: Array
    gradient: Gradient


class Quantities:
    """Functions of the parameters at a point.

    Parameters
    ----------
    point : Point
    H : (d, p), in the units of ``point.B``
    W : (r − d, p)
        White remainder ``w = W x``; no rows where the latents leave none.
    """

    def __init__(self, point: Point, H: Array, W: Array):
        self.point, self.H, self.W = point, H, W
        self.M = point.B @ H
        self.A = -point.B / np.diagonal(point.B)[:, None]
        np.fill_diagonal(self.A, 0.0)

    @property
    def n_outer(self) -> int:
        """Length of the columns of (V, Y, κ)."""
        return 2 * self.point.d + (self.point.tau is not None)

    @cached_property
    def total(self) -> Array:
        """(I − A)^{-1}, (d, d)."""
        return np.asarray(np.linalg.inv(np.eye(self.point.d) - self.A))

    def unmixing(self, i: int, columns: "IntArray | slice" = slice(None)) -> Gradient:
        """Entries of row i of H."""
        d = self.point.d
        entries = self.M[:, columns].T
        inner = np.zeros((len(entries), self.point.size))
        inner[:, i * d : (i + 1) * d] = entries
        if not len(self.W):
            return Gradient(inner)
        c = np.zeros((len(entries), self.n_outer))
        c[:, i] = 1.0
        return Gradient(inner, ((c, self.W[:, columns].T),))

    def log_scale(self, scaling: str) -> tuple[Array, Gradient]:
        """s (d,) and the gradients of its logarithm."""
        if scaling not in self._scales:
            self._scales[scaling] = self._log_scale(scaling)
        return self._scales[scaling]

    @cached_property
    def _scales(self) -> dict[str, tuple[Array, Gradient]]:
        return {}

    def _log_scale(self, scaling: str) -> tuple[Array, Gradient]:
        d, H = self.point.d, self.H
        if scaling == "unit-variance":
            B_inv = self.point.B_inv
            V = B_inv @ B_inv.T
            beta = -np.einsum("ia,bi->iab", B_inv, V) / np.diagonal(V)[:, None, None]
            return np.sqrt(np.diagonal(V)), Gradient(self.point.pack(beta=beta))
        if scaling == "paper":
            size = np.abs(H)
            pivot = np.argmax(size >= (1 - 1e-9) * size.max(axis=1, keepdims=True), axis=1)
            direction = np.zeros_like(H)
            direction[np.arange(d), pivot] = 1 / H[np.arange(d), pivot]
            s = H[np.arange(d), pivot]
        elif scaling == "unit-norm":
            s = np.linalg.norm(H, axis=1)
            direction = H / s[:, None] ** 2
        else:
            raise ValueError(f"scaling must be 'paper', 'unit-variance' or 'unit-norm', got {scaling!r}")
        X = np.zeros((d, d, d))
        X[np.arange(d), np.arange(d)] = direction @ self.M.T
        inner = self.point.pack(X)
        if not len(self.W):
            return s, Gradient(inner)
        return s, Gradient(inner, ((np.eye(d, self.n_outer), direction @ self.W.T),))

    def blocks(self, name: str, scaling: str = "paper") -> Iterator[Block]:
        """All values of one quantity, in pieces that fit in memory."""
        if name in ("scale", "shift", "noise_variance"):
            yield getattr(self, f"_{name}")(scaling)
            return
        for i in range(self.point.d):
            block: Block = getattr(self, f"_{name}")(i, scaling)
            if len(block.rows):
                yield block

    def _scaled(self, block: Block, scaling: str, row: int, column: int) -> Block:
        """A quantity that goes with ``s_row^… s_column^…``; both index latents."""
        s, log_s = self.log_scale(scaling)
        factor, gradient = np.ones(len(block.rows)), block.gradient
        for power, index in ((row, block.rows), (column, block.columns)):
            if power:
                factor = factor * s[index] ** power
                gradient = gradient + log_s[index].times(power * block.estimate)
        return Block(block.rows, block.columns, factor * block.estimate, gradient.times(factor))

    def _unmixing(self, i: int, scaling: str) -> Block:
        s, log_s = self.log_scale(scaling)
        raw, h = self.unmixing(i), self.H[i]
        outer = raw.outer
        if outer and log_s.outer:  # one outer product, not two: both belong to row i
            outer = ((outer[0][0], outer[0][1] - np.outer(h, log_s.outer[0][1][i])),)
        gradient = Gradient(raw.inner - np.outer(h, log_s.inner[i]), outer)
        return Block(np.full(len(h), i), np.arange(len(h)), h / s[i], gradient.times(1 / s[i]))

    def _structural(self, i: int, scaling: str) -> Block:
        columns = np.flatnonzero(self.point.edge[i] | (np.arange(self.point.d) == i))
        block = Block(np.full(len(columns), i), columns, self.point.B[i, columns], self._entries(i, columns))
        return self._scaled(block, scaling, 0, 1)

    def _weight(self, i: int, scaling: str) -> Block:
        columns = np.flatnonzero(self.point.edge[i])
        gradient = self._entries(i, columns).times(-1 / self.point.B[i, i])
        return self._scaled(Block(np.full(len(columns), i), columns, self.A[i, columns], gradient), scaling, -1, 1)

    def _entries(self, i: int, columns: IntArray) -> Gradient:
        """Entries of row i of B_0."""
        beta = np.zeros((len(columns), self.point.d, self.point.d))
        beta[np.arange(len(columns)), i, columns] = 1.0
        return Gradient(self.point.pack(beta=beta))

    def _total_effect(self, i: int, scaling: str) -> Block:
        columns = np.flatnonzero(self._ancestors[i])
        beta = -np.einsum("a,bj->jab", self.total[i] / np.diagonal(self.point.B), self.total[:, columns])
        block = Block(np.full(len(columns), i), columns, self.total[i, columns], Gradient(self.point.pack(beta=beta)))
        return self._scaled(block, scaling, -1, 1)

    @cached_property
    def _ancestors(self) -> BoolArray:
        """(d, d), ``[i, j]`` iff j is an ancestor of i in the graph."""
        reach = self.point.edge
        while True:
            longer = reach | (reach.astype(float) @ reach.astype(float) > 0)
            if np.array_equal(longer, reach):
                return reach
            reach = longer

    def _noise_variance(self, scaling: str) -> Block:
        latents = np.arange(self.point.d)
        zero = Gradient(self.point.pack(rows=self.point.d))
        return self._scaled(Block(latents, latents, np.diagonal(self.point.B) ** -2.0, zero), scaling, 0, -2)

    def _own_entry(self) -> Gradient:
        """The diagonal entry of each intervened row."""
        q = np.arange(len(self.point.b))
        beta_q = np.zeros((len(q), len(q), self.point.d))
        beta_q[q, q, self.point.target] = 1.0
        return Gradient(self.point.pack(beta_q=beta_q, rows=len(q)))

    def _scale(self, scaling: str) -> Block:
        q, target = np.arange(len(self.point.b)), self.point.target
        return self._scaled(Block(q, target, self.point.b[q, target], self._own_entry()), scaling, 0, 1)

    def _shift(self, scaling: str) -> Block:
        point, q = self.point, np.arange(len(self.point.b))
        own = point.b[q, point.target]
        tau = np.zeros(len(q)) if point.tau is None else point.tau
        shift = tau / own
        mean = Gradient(point.pack(nu=-point.b @ point.B_inv, tau=np.eye(len(q)), rows=len(q)))
        gradient = (mean + self._own_entry().times(-shift)).times(1 / own)
        return self._scaled(Block(q, point.target, shift, gradient), scaling, 0, -1)
