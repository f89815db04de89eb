"""Reports: one dict of plain types, and the same as a self-contained HTML page, markdown or JSON.

>>> from latentdag import report, simulate
>>> from latentdag.methods.fitting import fit
>>> m = simulate.sample_moments(simulate.random_model(3, 4, rng=1), 2_000, rng=1)
>>> made = report.collect(fit(m), m)
>>> [check["name"] for check in made["checks"]][:2]
['Did anything change?', 'Samples per context']

``report.write(fit, "report.html", moments)`` writes the page: no network is needed to open it, and none is used. All
that is said about a fit is computed once, in :class:`Results`; whatever shows a fit reads it from there.

============  =====================================================================
``results``   everything that is said about a fit, computed once, and how it was made
``checks``    the tests behind the first page, and a verdict on each check
``records``   contexts, latents, edges and effects, one record each; the graph drawn
``text``      the dict, and single values, as HTML, markdown or JSON
============  =====================================================================

The pages are the templates ``page.html`` and ``page.md``. Wording that is the same in every report (verdicts, methods,
whom to cite, columns of tables) is in ``words.toml``.
"""

from latentdag.report.records import latent_records  # noqa: F401
from latentdag.report.results import Results, citation, collect, moments_hash, versions, write  # noqa: F401
from latentdag.report.text import filled, show, to_html, to_json, to_markdown, write_page  # noqa: F401

#: What users call. The other names above are for the pages of :mod:`latentdag.workflow` and the command line.
__all__ = ["Results", "collect", "to_html", "to_json", "to_markdown", "write"]
