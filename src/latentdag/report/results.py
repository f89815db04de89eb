"""Everything that is said about a fit, computed once; and how the numbers were made.

:class:`Results` is the one collection that all faces read: the terminal, tables, figures, ``summary.txt``, and the dict
of :func:`collect`, from which HTML, markdown and JSON are made. Each part is computed when it is first asked for and
then kept, so that no face computes anything again.

The functions at the end say how: methods in words, whom to cite, versions, and a hash of the data.
"""

import os
import platform
from collections.abc import Hashable, Iterator
from dataclasses import KW_ONLY, asdict, dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from latentdag import __version__, pl
from latentdag.data import labels as lb
from latentdag.data.moments import Moments
from latentdag.data.store import to_plain
from latentdag.data.stream import Samples
from latentdag.errors import clear_numerics
from latentdag.inference.membership import MembershipTest
from latentdag.inference.resampling import digest
from latentdag.inference.stability import Bootstrap
from latentdag.methods.orientation import signs_mean
from latentdag.methods.result import Fit
from latentdag.methods.verdict import Verdict
from latentdag.report import records
from latentdag.report.checks import Check, Evidence, all_checks, gather, overall
from latentdag.report.text import WORDS, to_html, to_json, to_markdown, write_page
from latentdag.uncertainty.edges import edge_table
from latentdag.uncertainty.standard_errors import Uncertainty

#: Packages that compute, and their modules.
PACKAGES = {name: name for name in ("numpy", "scipy", "pandas", "networkx")} | {"scikit-learn": "sklearn"}

#: Raised when the shape of the dict changes.
FORMAT = 1


@dataclass(frozen=True, eq=False)
class Results:
    """A fit with everything that is said about it, each part computed once, when it is first asked for.

    Parameters
    ----------
    fit : Fit
    moments : Moments, optional
        What was fitted. Without them there are no rank tests, no conditioning and no hash.
    title : str, optional
    tests : bool or MembershipTest, optional
        By default rank tests and the membership test are run where there are moments; its joint part up to 20 latents.
        False runs none; a test made before is shown as it is.
    bootstrap : Bootstrap, optional
        Made before with :func:`latentdag.inference.bootstrap.bootstrap`: how often edges came back.
    data : (X, contexts), optional
        The samples behind the moments: then tests and errors hold without Gaussian noise.
    level : float
        Of the intervals.
    n_features : int
        Strongest features listed for each latent.
    seed : int, optional
        Of the analysis, to be shown; by default the bootstrap's.
    created : str, optional
        A date to be shown. Left out, the same fit gives the same bytes.
    """

    fit: Fit
    moments: Moments | None = None
    _: KW_ONLY
    title: str | None = None
    tests: bool | MembershipTest | None = None
    bootstrap: Bootstrap | None = None
    data: Samples | None = None
    level: float = 0.95
    n_features: int = 10
    seed: int | None = None
    created: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.fit, Fit):
            kind = type(self.fit).__name__
            raise TypeError(f"a report is about a Fit, got {kind}: make one with latentdag.fit(moments)")
        if not 0 < self.level < 1:
            raise ValueError(f"level is a probability between 0 and 1, got {self.level}")
        if not (isinstance(self.n_features, int) and self.n_features >= 1):
            raise ValueError(f"n_features must be a positive whole number, got {self.n_features!r}")

    @property
    def digest(self) -> str | None:
        """The SHA-256 of the moments; None without them."""
        return None if self.moments is None else moments_hash(self.moments)

    @cached_property
    def uncertainty(self) -> Uncertainty:
        """How well the parameters are known; with ``data``, one pass over the samples."""
        return self.fit.uncertainty(self.data)

    @cached_property
    @clear_numerics
    def edges(self) -> pd.DataFrame:
        """The table of :meth:`latentdag.Fit.edges`, with intervals."""
        return edge_table(self.fit, self.uncertainty, self.level)

    @cached_property
    @clear_numerics
    def standardized(self) -> pd.DataFrame:
        """Intervals of weights and total effects between latents of unit variance."""
        return self.uncertainty.intervals(self.level, "unit-variance", ["weight", "total_effect"])

    def between(self, quantity: str) -> pd.DataFrame:
        """Return those of one quantity, from ``source`` to ``target``."""
        table = self.standardized[self.standardized["quantity"] == quantity]
        return table.rename(columns={"column": "source", "row": "target"})

    @property
    def contexts(self) -> dict[Hashable, int]:
        """All contexts with their samples, the control first; also those that were left out of the fit."""
        fitted = dict(zip(self.fit.model.contexts, self.fit.counts, strict=True))
        m = self.moments
        return fitted if m is None else dict(zip(m.contexts, m.counts.tolist(), strict=True))

    @cached_property
    def evidence(self) -> Evidence:
        """What the rank tests and the membership test found, or why they were not made."""
        return gather(self.fit, self.moments, self.tests, self.data)

    @property
    def refused(self) -> bool:
        """Whether the data refuse the model: by the test that the fit made, or by those of the report."""
        test = self.evidence.membership
        return "refusal" in self.fit.details or (test is not None and not test.in_model)

    @cached_property
    def checks(self) -> list[Check]:
        """Every check that applies to the fit, with its verdict in plain words."""
        return all_checks(self)

    @cached_property
    def verdict(self) -> tuple[str, Verdict]:
        """The status of the fit ("bad", "warn", "open", "note" or "good"), and the verdict that every face shows."""
        return overall(self, self.checks)

    @cached_property
    def summary(self) -> str:
        """The table of :meth:`latentdag.Fit.summary` with this verdict, for the terminal and ``summary.txt``."""
        return f"{self.fit.summary().removesuffix(str(self.fit.verdict))}{self.verdict[1]}"

    @cached_property
    @clear_numerics
    def tables(self) -> dict[str, pd.DataFrame]:
        """Tables for files, by name: edges, unmixing, intervals, targets and, with a bootstrap, stability."""
        model = self.fit.model
        hits = zip(lb.text_names(model.contexts)[1:], model.interventions.values(), strict=True)
        pairs = [(text, name) for text, change in hits for name in change.targets]
        unmixing = pd.DataFrame(model.unmixing, index=model.latents, columns=list(model.feature_names))
        made = {
            "edges": self.edges,
            "unmixing": unmixing.reset_index(names="latent"),
            "intervals": self.uncertainty.intervals(self.level, "paper"),
            "targets": pd.DataFrame(pairs, columns=["context", "latent"]),
        }
        return made if self.bootstrap is None else {**made, "stability": self.bootstrap.summary.reset_index()}

    def figures(self) -> Iterator[tuple[str, Any]]:
        """Yield the figures for files after their names, each drawn when it is asked for."""
        yield "latent-graph", pl.latent_graph(self.fit, table=self.edges).figure
        yield "mixing", pl.mixing(self.fit).figure
        if self.moments is not None:
            yield "spectra", pl.spectra(self.moments).figure
        if len(self.edges):
            yield "edges", pl.edges(self.fit, table=self.edges).figure
        if self.bootstrap is not None:
            yield "order-stability", pl.order_stability(self.bootstrap).figure

    @cached_property
    def report(self) -> dict[str, Any]:
        """The dict of plain types from which HTML, markdown and JSON are made; see :func:`collect`."""
        fit, bootstrap = self.fit, self.bootstrap
        status, verdict = self.verdict
        edges = records.edge_records(self)
        latents = records.latent_records(fit, edges, self.n_features)
        settings = None if bootstrap is None else dict(bootstrap.settings)
        size = f"{fit.model.n_latents} latents behind {fit.model.n_features} features"
        made = to_plain(
            {
                "kind": "latentdag report",
                "format": FORMAT,
                "title": self.title or f"Latent causal graph: {size}",
                "headline": {
                    "latents": fit.model.n_latents,
                    "features": fit.model.n_features,
                    "contexts": len(fit.model.contexts),
                    "samples": fit.n_samples,
                    "edges": fit.graph.number_of_edges(),
                    **{name: getattr(fit, name) for name in ("method", "loglik", "bic")},
                },
                "level": self.level,
                "verdict": {"status": status, "text": str(verdict), **asdict(verdict)},
                "idle": lb.text_names(fit.idle),
                "checks": self.checks,
                "contexts": records.context_records(self),
                "signs": signs_mean(fit),
                "latents": latents,
                "features": [{"latent": z["latent"], **feature} for z in latents for feature in z["features"]],
                "edges": edges,
                "edges_note": self.edges.attrs["note"],
                "effects": records.effect_records(self),
                "plan": records.plan_records(fit),
                "graph": records.graph_drawing(latents, edges),
                **({} if bootstrap is None else _stability(bootstrap)),
                "methods": methods_text(fit, self.evidence, self.level, self.data is not None, settings),
                "citation": citation(),
                "provenance": {
                    "versions": versions(),
                    "seed": self.seed if self.seed is not None or settings is None else settings["seed"],
                    "method": fit.method,
                    "options": fit.options.to_json(),
                    "bootstrap": settings,
                    "moments_sha256": self.digest,
                    "created": self.created,
                },
            }
        )
        return {**made, "tables": _tables(made)}


def collect(fit: Fit, moments: Moments | None = None, **options: Any) -> dict[str, Any]:
    """Return everything a report says about a fit, as one dict of plain types.

    Parameters
    ----------
    fit : Fit
    moments : Moments, optional
        What was fitted. Without them there are no rank tests, no conditioning and no hash.
    **options
        title, tests, bootstrap, data, level, n_features, seed, created: see :class:`latentdag.report.Results`.

    Returns
    -------
    dict
        title, headline, verdict, idle, checks, contexts, latents, edges, effects, plan, graph, tables, methods,
        citation, provenance. ``None`` stands for what is not known or not finite.

    Examples
    --------
    >>> from latentdag import simulate
    >>> from latentdag.methods.fitting import fit
    >>> m = simulate.sample_moments(simulate.random_model(3, 4, rng=1), 2_000, rng=1)
    >>> found = collect(fit(m), m)
    >>> found["verdict"]["status"], found["headline"]["latents"]
    ('good', 3)
    """
    return Results(fit, moments, **options).report


def write(fit: Fit | Results, path: str | os.PathLike[str], moments: Any = None, **options: Any) -> Path:
    """Write a report of a fit: a page to open in any browser, or its content as JSON or markdown.

    Parameters
    ----------
    fit : Fit or Results
        With results, moments and options are those of the results.
    path : path
        Ending in ``.html``, ``.json`` or ``.md``. Written whole or not at all.
    moments : Moments, optional
        What was fitted; without them the first page can check less.
    **options
        title, tests, bootstrap, data, level, n_features, seed, created: see :class:`latentdag.report.Results`.
    """
    results = fit if isinstance(fit, Results) else Results(fit, moments, **options)
    makers = {
        ".html": lambda: to_html(results.report),
        ".json": lambda: to_json(results.report),
        ".md": lambda: to_markdown(results.report),
    }
    return write_page(path, makers)


def _stability(bootstrap: Bootstrap) -> records.Record:
    return {
        "bootstrap_summary": bootstrap.summary.to_dict("records"),
        "bootstrap_targets": bootstrap.targets.to_dict("records"),
        "bootstrap_orders": bootstrap.order.head(5).to_dict("records"),
    }


def _tables(report: records.Record) -> list[records.Record]:
    """Return the tables with something in them, without the columns that are empty in every row."""
    tables = []
    for key, table in WORDS["tables"].items():
        rows = report.get(key)
        if not rows:
            continue
        known = [c for c in table["columns"] if any(row.get(c[0]) not in (None, "") for row in rows)]
        named = [{"key": name, "label": label, "kind": kind} for name, label, kind in known]
        tables.append({"id": key, "title": table["title"], "note": table.get("note", ""), "columns": named})
    return tables


def methods_text(
    fit: Fit, evidence: Evidence, level: float, robust: bool, bootstrapped: dict[str, Any] | None
) -> list[str]:
    """Return the methods section of a report, one string per paragraph."""
    words = WORDS["methods"]
    how = words["how"].get(fit.method, f"The model was fitted with method {fit.method}.")
    how = how.format(penalty=float(fit.details.get("penalty", np.nan)), gamma=fit.options.gamma)
    if "intervention" in fit.options:
        kind = fit.options.intervention
        how += words["kind" if isinstance(kind, str) else "kinds"].format(kind=kind)
    if "means" in fit.options:
        how += words["means" if fit.options["means"] else "no_means"]
    text = [words["model"], how]
    if "changed" in fit.details:
        text.append(words["changed"])
    if fit.method == "likelihood":
        noise = "" if robust else "if the noise is Gaussian, and "
        text.append(words["errors"].format(level=100 * level, robust=noise))
    if evidence.ranks:
        text.append(words["rank"].format(note=next(iter(evidence.ranks.values())).attrs.get("note", "")))
    if bootstrapped:
        text.append(words["bootstrap"].format(**bootstrapped))
    return [*text, words["units"].format(signs=signs_mean(fit))]


def citation() -> dict[str, Any]:
    """Return what to cite: the paper, and this software."""
    return {**WORDS["citation"], "software": f"latentdag {__version__}"}


def versions() -> dict[str, str]:
    """Return the versions of Python and of every package that computes."""
    found = {package: str(import_module(module).__version__) for package, module in PACKAGES.items()}
    return {"latentdag": __version__, "Python": platform.python_version(), **found}


def moments_hash(m: Moments) -> str:
    """Return the SHA-256 of labels, names, counts, means, covariances and noise; it is the same on any machine."""
    names = [[repr(lb.as_label(c)) for c in m.contexts], repr(m.control), list(m.feature_names)]
    known = () if m.noise is None else (m.noise.astype("<f8"),)
    return digest(repr(names), m.counts.astype("<i8"), m.means.astype("<f8"), m.covariances.astype("<f8"), *known)
