"""Run the whole workflow in one call, and keep what every step found."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
import pandas as pd

from latentdag.core.multiplicity import holm
from latentdag.data.moments import Moments
from latentdag.data.store import packaged
from latentdag.datasets.containers import Cohort, Screen
from latentdag.inference.membership import MembershipTest, membership_test
from latentdag.inference.ranks import p_value_column, rank_test
from latentdag.methods.fitting import fit as run_fit
from latentdag.methods.result import Fit
from latentdag.methods.verdict import idle_reasons
from latentdag.progress import Progress
from latentdag.report import Results
from latentdag.workflow.choose import MIN_CELLS, Choice, choose
from latentdag.workflow.survival import ALPHA, cox_table, random_scores, transfer_scores

#: What the workflow and its page say in the same words every time.
WORDS: dict[str, Any] = json.loads(packaged("workflow/page.json"))


@dataclass(frozen=True, eq=False)
class Workflow:
    """What the workflow found.

    Attributes
    ----------
    screen, cohort : str
        Names of the data.
    choice : Choice
        Cells, contexts and genes.
    moments : Moments
    unchanged : Series
        Per context the p-value, by Holm, of a covariance equal to the control's: large where a perturbation does not
        show in it.
    membership : MembershipTest
        Of all contexts chosen, before the fit.
    fit : Fit
        Latents are called Z(context), so that nobody takes them for the gene or the perturbation of that name.
    scores : DataFrame, patients × latents
    latents, genes : DataFrame
        Cox regressions per latent, and per gene as the baseline; see :func:`latentdag.survival.cox_table`. Latents have
        the further column ``random_share``: how many random mixtures of the same genes have a p-value as small.
    random : DataFrame
        Cox regressions of those mixtures.
    alpha : float
        False-discovery rate of the marks.
    scaling : str
        How the cohort's genes were scaled.
    covariates : names of covariates in the Cox regressions
    """

    screen: str
    cohort: str
    choice: Choice
    moments: Moments
    unchanged: pd.Series
    membership: MembershipTest
    fit: Fit
    scores: pd.DataFrame
    latents: pd.DataFrame
    genes: pd.DataFrame
    random: pd.DataFrame
    alpha: float
    scaling: str
    covariates: tuple[str, ...] = ()

    @property
    def samples(self) -> tuple[np.ndarray, np.ndarray]:
        """Cells of the fit, (n, p), and their contexts, (n,), normalised and adjusted."""
        return self.choice.samples(self.moments.contexts)

    @cached_property
    def results(self) -> Results:
        """What is said about the fit: with its samples, so that tests and errors hold without Gaussian noise."""
        return Results(self.fit, self.moments, tests=self.membership, data=self.samples, title=self.screen)

    @property
    def edges(self) -> pd.DataFrame:
        """The edges of the fit, with intervals; see :meth:`latentdag.Fit.edges`."""
        return self.results.edges

    @property
    def significant(self) -> list[str]:
        """Latents associated with survival at the false-discovery rate."""
        return [str(name) for name in self.latents.index[self.latents["significant"]]]

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """Tables for files, by name: Cox regressions, scores, contexts and genes."""
        return {
            "survival-latents": self.latents.reset_index(names="latent"),
            "survival-genes": self.genes.reset_index(names="gene"),
            "survival-random": self.random.reset_index(names="mixture"),
            "scores": self.scores.reset_index(names="patient"),
            "membership": self.membership.summary.assign(unchanged=self.unchanged).reset_index(),
            "genes": self.choice.table.reset_index(),
        }

    def sentences(self) -> list[str]:
        """Return what was found, in words that the numbers carry."""
        m, marked, words = self.moments, self.significant, WORDS["said"]
        edges, silent = self.fit.graph.number_of_edges(), int((~(self.unchanged <= 0.05)).sum())
        said = [words["data"].format(m=m, cells=int(m.counts.sum())), self.membership.verdict]
        said += [*idle_reasons(self.fit), *self.fit.verdict.notes]
        if m.outliers is not None:
            said.insert(1, words["outliers"].format(out=int(m.outliers.sum())))
        if silent:
            said.append(words["silent"].format(silent=silent, m=m))
        named = {"names": f": {', '.join(marked)}" if marked else "", "marked": _number(len(marked)), "found": self}
        said += [
            words["graph"].format(edges=edges, plural="s" * (edges != 1), latents=len(self.fit.latents)),
            words["latents"].format(n=len(self.latents), **named, **self.latents.attrs),
            *self._doubts(),
            words["genes"].format(n=len(self.genes), marked=_number(int(self.genes["significant"].sum()))),
        ]
        if len(self.random):
            share, best = float((self.random["p_value"] < 0.05).mean()), self.latents["p_value"].idxmin()
            smaller = self.latents["random_share"][best]
            said.append(words["random"].format(n=len(self.random), share=share, best=best, smaller=smaller))
        return said

    def _doubts(self) -> list[str]:
        """Return what speaks against latents that are associated with survival."""
        silent = {c for c, p in self.unchanged.items() if not p <= 0.05}
        done = self.fit.model.interventions.items()
        hits = {name: {context for context, value in done if name in value.targets} for name in self.significant}
        said = []
        for kind, contexts in (("mean_only", silent), ("several", set(self.membership.drop))):
            names = [name for name, hit in hits.items() if hit <= contexts]
            come = "comes from a context" if len(names) == 1 else "come from contexts"
            said += [WORDS["doubts"][kind].format(names=", ".join(names), come=come)] if names else []
        return said


def _number(n: int) -> str:
    return "none is" if n == 0 else "1 is" if n == 1 else f"{n} are"


def run(
    screen: Screen,
    cohort: Cohort,
    *,
    genes: Iterable[str] | None = None,
    n_genes: int = 30,
    contexts: Iterable[str] | None = None,
    min_cells: int = MIN_CELLS,
    counts: bool | None = None,
    adjust: Iterable[str] = (),
    robust: bool = False,
    targets: Mapping[Any, str] | None = None,
    members_only: bool = False,
    scaling: Literal["control", "none"] = "control",
    covariates: pd.DataFrame | None = None,
    alpha: float = ALPHA,
    n_random: int = 200,
    rng: Any = 0,
    progress: bool | None = None,
    **options: Any,
) -> Workflow:
    """Learn latents from a screen, and test which of them go with survival in a cohort.

    Parameters
    ----------
    screen : Screen
        For example ``latentdag.datasets.kras()``, or :func:`latentdag.workflow.screen_of` of an AnnData object.
    cohort : Cohort
    genes, n_genes, contexts, min_cells, counts, adjust, robust
        See :func:`latentdag.workflow.choose`. Genes are chosen among those that the cohort has too.
    targets : mapping of context to latent, optional
        Where contexts share a target; by default each has its own.
    members_only : bool
        Fit only the contexts that the membership test keeps.
    scaling : "control" or "none"
        See :mod:`latentdag.workflow.survival`.
    covariates : DataFrame, optional
        Of the cohort's patients, in every Cox regression.
    alpha : float
        False-discovery rate, the paper's 0.1 by default.
    n_random : int
        Random mixtures of the same genes to compare with.
    rng : seed or Generator
        Of the random mixtures.
    progress : bool, optional
        By default in a terminal.
    **options
        Of :func:`latentdag.fit`, such as ``noise="auto"``. The membership test takes features as exact.

    Raises
    ------
    ValueError
        If there are fewer genes than latents, or any step has nothing to work with.
    """
    cox = partial(cox_table, survival=cohort.survival, covariates=covariates, alpha=alpha)
    with Progress("workflow", 6, progress) as bar:
        bar.say("choosing cells and genes")
        varying = cohort.expression.columns[cohort.expression.std() > 0]
        choice = choose(
            screen, genes=genes, among=varying, n_genes=n_genes, contexts=contexts, min_cells=min_cells,
            counts=counts, adjust=adjust, robust=robust,
        )  # fmt: skip
        m = choice.moments()
        bar.say("testing contexts", 1)
        tested = membership_test(m, (choice.X, choice.contexts))
        if members_only and not tested.members:
            raise ValueError(
                "the membership test keeps no context: nothing is left to fit (members_only=False fits all)"
            )
        m = m.select(tested.members) if members_only else m
        samples = choice.samples(m.contexts)
        ranks = rank_test(m, rank=0, data=samples)
        unchanged = pd.Series(holm(ranks[p_value_column(ranks)].to_numpy()), index=ranks.index, name="unchanged")
        targets = {c: f"Z({c})" for c in m.contexts[1:]} if targets is None else targets
        _check_size(m, targets)
        bar.say("fitting", 1)
        found = run_fit(m, targets=targets, data=samples, **options)
        bar.say("survival per latent", 1)
        scores = transfer_scores(found.model, cohort.expression, scaling)[list(found.order)]
        latents = cox(scores)
        bar.say("survival per gene", 1)
        expression = cohort.expression[list(m.feature_names)]
        baseline = cox(expression)
        bar.say("survival per random mixture", 1)
        random = cox(random_scores(expression, n_random, rng))
        # how many random mixtures have a p-value as small; nan where there are none to compare with
        smaller = latents["p_value"].map(lambda p: (random["p_value"] <= p).mean(), na_action="ignore")
        latents["random_share"] = smaller.astype(float)
    names = () if covariates is None else tuple(map(str, covariates.columns))
    return Workflow(
        screen.name, cohort.name, choice, m, unchanged, tested, found, scores, latents, baseline, random, alpha,
        scaling, names,
    )  # fmt: skip


def _check_size(m: Moments, targets: Mapping[Any, str]) -> None:
    n = len(set(targets.values()))
    if n > m.n_features:
        raise ValueError(
            f"{n} latents behind {m.n_features} genes cannot be told apart: raise n_genes, name fewer contexts, or say "
            "with targets= which of them share a latent"
        )
