"""Reports: one dict of plain types, and the same as a self-contained HTML page, markdown or JSON.

>>> from latentdag import report, simulate
>>> from latentdag.methods.fitting import fit
>>> m = simulate.sample_moments(simulate.random_model(3, 4, rng=1), 2_000, rng=1)
>>> made = report.collect(fit(m), m)
>>> [check["name"] for check in made["checks"]][:2]
['Samples per context', 'Does every perturbation show?']

``report.write(fit, "report.html", moments)`` writes the page: no network is needed to open it, and none is used.
"""

from latentdag.report.content import collect
from latentdag.report.markdown import to_markdown
from latentdag.report.render import to_html, to_json, write

__all__ = ["collect", "to_html", "to_json", "to_markdown", "write"]
