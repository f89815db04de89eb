"""Standard errors the slow way: every formula differentiated numerically, nothing shared with the library's own.

Parameters are the numbers of a :class:`LatentModel` as a user sees them (one entry of each row of H held at its value),
the law of each context is its exact mean and covariance on the range of the features, and the information is
``Σ n/2 tr(Θ ∂Σ Θ ∂Σ) + n ∂μᵀ Θ ∂μ`` by central differences.
"""

from dataclasses import replace
from itertools import pairwise

import numpy as np

from latentdag.model.intervention import Change, Intervention


def parameters(model, edges, means=True, basis=None):
    """A vector of free numbers and the function that builds the model from it."""
    d, p = model.unmixing.shape
    names = list(model.latents)
    rest = model.residual is not None
    # H moves inside the range of the features only
    U = np.linalg.svd(model.unmixing, full_matrices=False)[2].T if basis is None else basis
    pins = [int(np.argmax(np.abs(U @ (U.T @ h)))) for h in model.unmixing]
    pinned = [np.linalg.svd((U[[j]]), full_matrices=True)[2][1:].T for j in pins]  # moves that keep entry j
    r = U.shape[1]
    mechanisms = [(c, n) for c, v in model.interventions.items() for n in v.changes]
    if rest:
        w, V = np.linalg.eigh(model.residual)
        E = V[:, p - (r - d) :] * np.sqrt(w[p - (r - d) :])
    sizes = [d * (r - 1), len(edges), d]
    soft = [
        (q, parent)
        for q, (c, n) in enumerate(mechanisms)
        if model.interventions[c].changes[n].kind == "soft"
        for parent in (model.interventions[c].changes[n].weights or {})
    ]
    sizes += [len(mechanisms), len(soft)]
    sizes += [r, len(mechanisms)] if means else [0, 0]
    sizes += [(r - d) * d, (r - d) * (r - d + 1) // 2] if rest else [0, 0]
    ends = np.cumsum([0, *sizes])

    def build(theta):
        part = [theta[a:b] for a, b in pairwise(ends)]
        H = model.unmixing + np.array([U @ N @ x for N, x in zip(pinned, part[0].reshape(d, r - 1), strict=True)])
        A = model.weights.copy()
        for x, (source, target) in zip(part[1], edges, strict=True):
            A[names.index(target), names.index(source)] += x
        Omega = model.noise_variance * np.exp(part[2])
        changes = {}
        for q, (c, n) in enumerate(mechanisms):
            old = model.interventions[c].changes[n]
            weights = None if old.weights is None else dict(old.weights)
            for x, (q_2, parent) in zip(part[4], soft, strict=True):
                if q_2 == q:
                    weights[parent] += x
            shift = old.shift + (part[6][q] if means else 0.0)
            changes.setdefault(c, {})[n] = Change(old.kind, old.variance * np.exp(part[3][q]), shift, weights)
        offset = model.offset + (U @ part[5] if means else 0.0)
        loadings, residual = model.loadings, model.residual
        if rest:
            # a basis of the null space of the new H, and loadings with H G = I
            G = model.loadings @ np.linalg.inv(H @ model.loadings)
            N = E - G @ (H @ E)
            S = np.eye(r - d)
            S[np.tril_indices(r - d)] += part[8]
            loadings = G + N @ part[7].reshape(r - d, d)
            residual = N @ S @ S.T @ N.T
        return replace(
            model,
            unmixing=H,
            weights=A,
            noise_variance=Omega,
            offset=offset,
            loadings=loadings,
            residual=residual,
            interventions={c: Intervention.of_changes(change) for c, change in changes.items()},
        )

    return np.zeros(ends[-1]), build, U


def derivative(f, theta, step=1e-5):
    """Central differences, one column per parameter."""
    columns = []
    for a in range(len(theta)):
        up, down = theta.copy(), theta.copy()
        up[a] += step
        down[a] -= step
        columns.append((f(up) - f(down)) / (2 * step))
    return np.stack(columns, axis=-1)


def information(theta, build, U, counts, means=True):
    """Expected Fisher information."""
    total = 0.0
    contexts = build(theta).contexts
    for context, n in zip(contexts, counts, strict=True):
        S = derivative(lambda t, c=context: U.T @ build(t).covariance(c) @ U, theta)
        Theta = np.linalg.inv(U.T @ build(theta).covariance(context) @ U)
        white = np.einsum("ij,jka->ika", Theta, S)
        n = n if means else n - 1
        total = total + 0.5 * n * np.einsum("ija,jib->ab", white, white)
        if means:
            mu = derivative(lambda t, c=context: U.T @ build(t).mean(c), theta)
            total = total + n * mu.T @ Theta @ mu
    return total


def std_error(f, theta, build, C):
    """Delta method for a function of the model."""
    J = derivative(lambda t: np.asarray(f(build(t))).ravel(), theta)
    return np.sqrt(np.einsum("ia,ab,ib->i", J, C, J))
