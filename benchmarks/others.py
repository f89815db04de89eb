"""Other packages behind two interfaces, for ``comparison.py``; each is imported where it is called, so none is needed.

*Representations* take samples X (N, p), their contexts (the control first in ``names``) and d, and give rows W (d, p):
the components are ``X @ W.T``. None of them says what a context hits.

*Graphs* take the samples of d variables, one array per context with the control first, and the target of each context
but the control. They give an adjacency matrix, [i, j] true where i → j, with both [i, j] and [j, i] where the direction
is left open; and targets, where the method finds them itself.
"""

import random
import warnings

import numpy as np


def linear(transform, p):
    """The matrix of a linear (or affine) map of rows."""
    return (transform(np.eye(p)) - transform(np.zeros((1, p)))).T


def pca(X, contexts, names, d):
    from sklearn.decomposition import PCA

    return PCA(d).fit(X).components_


def factor_analysis(X, contexts, names, d):
    from sklearn.decomposition import FactorAnalysis

    return linear(FactorAnalysis(d, max_iter=50).fit(X).transform, X.shape[1])


def fast_ica(X, contexts, names, d):
    from sklearn.decomposition import FastICA

    return FastICA(d, whiten="unit-variance", max_iter=200, random_state=0).fit(X).components_


def picard(X, contexts, names, d):
    from picard import picard

    K, W, _ = picard(X.T, n_components=d, max_iter=200, random_state=0)
    return W @ K


def pham(X, contexts, names, d):
    from pyriemann.geometry.ajd import ajd_pham

    return jointly(X, contexts, names, d, lambda C: ajd_pham(C, n_iter_max=100)[0])


def uwedge(X, contexts, names, d):
    from pyriemann.geometry.ajd import uwedge

    return jointly(X, contexts, names, d, lambda C: uwedge(C)[0])


def quasi_newton(X, contexts, names, d):
    from qndiag import qndiag

    return jointly(X, contexts, names, d, lambda C: qndiag(C)[0])


def jointly(X, contexts, names, d, diagonalise):
    """Joint diagonalisation of the contexts' covariances in the d dimensions that the data have."""
    P = np.linalg.eigh(np.cov(X.T))[1][:, -d:].T
    return diagonalise(np.array([P @ np.cov(X[contexts == c].T) @ P.T for c in names])) @ P


REPRESENTATIONS = {
    "PCA": pca, "FactorAnalysis": factor_analysis, "FastICA": fast_ica, "picard": picard, "pyriemann-pham": pham,
    "pyriemann-uwedge": uwedge, "qndiag": quasi_newton,
}  # fmt: skip


def gies(data, targets):
    """Greedy interventional equivalence search: perfect interventions with known targets."""
    import gies

    return gies.fit_bic(data, [[], *([t] for t in targets)])[0] != 0, None


def ut_igsp(data, targets):
    """Greedy sparsest permutation with unknown targets, Gaussian tests at 0.001."""
    import causaldag
    import conditional_independence as ci

    random.seed(0)  # it starts from random permutations
    correlations = ci.partial_correlation_suffstat(data[0])
    independent = ci.MemoizedCI_Tester(ci.partial_correlation_test, correlations, alpha=1e-3)
    regressions = ci.gauss_invariance_suffstat(data[0], data[1:])
    invariant = ci.MemoizedInvarianceTester(ci.gauss_invariance_test, regressions, alpha=1e-3)
    settings = [{"known_interventions": []} for _ in data[1:]]
    graph, found = causaldag.unknown_target_igsp(settings, set(range(data[0].shape[1])), independent, invariant)
    return graph.to_amat()[0] != 0, [{int(i) for i in hit} for hit in found]


def pc(data, targets):
    """PC on the control alone, Fisher's z at 0.01."""
    from causallearn.search.ConstraintBased.PC import pc

    return _causal_learn(pc(data[0], alpha=0.01, show_progress=False).G.graph)


def ges(data, targets):
    """Greedy equivalence search with BIC on the control alone."""
    from causallearn.search.ScoreBased.GES import ges

    return _causal_learn(ges(data[0], score_func="local_score_BIC")["G"].graph)


def _causal_learn(G):
    """There, G[j, i] = 1 and G[i, j] = −1 is i → j, and two −1 an open direction."""
    return (G == -1) & (G.T != 0), None


def direct_lingam(data, targets):
    """DirectLiNGAM on the control alone; it needs noise that is not Gaussian."""
    import lingam

    return lingam.DirectLiNGAM().fit(data[0]).adjacency_matrix_.T != 0, None


GRAPHS = {"gies": gies, "UT-IGSP": ut_igsp, "PC": pc, "GES": ges, "DirectLiNGAM": direct_lingam}


def quietly(function, *arguments):
    """The function's answer, or None where its package is not installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return function(*arguments)
        except ImportError:
            return None
