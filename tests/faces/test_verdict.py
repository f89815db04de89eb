"""The verdict on a fit is the same in every face; where the model is refused nothing looks as if it were fine."""

import json
import re

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import latentdag as ld
from latentdag import report, tl
from latentdag.cli.app import app

REFUSED = "These data refuse the model"


@pytest.fixture(scope="module")
def refused():
    """Every context hits two latents, and the fit is told of one each."""
    truth = ld.simulate.random_model(5, 8, n_targets=2, rng=0)
    X, contexts = ld.simulate.sample(truth, 800, rng=1)
    return pd.DataFrame(X, columns=list(truth.feature_names)).assign(context=contexts), truth.control


@pytest.fixture(scope="module")
def folder(refused, tmp_path_factory):
    place = tmp_path_factory.mktemp("refused")
    table, control = refused
    table.to_csv(place / "t.csv", index=False)
    told = ["fit", str(place / "t.csv"), "--control", control, "--out", str(place / "o")]
    printed = CliRunner().invoke(app, told)
    assert printed.exit_code == 0, printed.output
    said = CliRunner().invoke(app, [*told, "--json"])
    return place / "o", printed.stdout, json.loads(said.stdout)


def test_terminal_files_and_json_end_with_the_same_words(folder):
    place, printed, said = folder
    verdict = said["verdict"]
    assert REFUSED in verdict
    assert "What to do next: look first at " in verdict
    assert printed.rstrip().endswith(verdict)
    assert (place / "summary.txt").read_text().rstrip().endswith(verdict)
    assert any(reason.startswith(REFUSED) for reason in said["reasons"])
    page = (place / "report.html").read_text()
    shown = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page.split("<nav")[0])).replace("&#39;", "'")
    for sentence in said["reasons"]:
        assert sentence in shown


def test_a_refused_page_has_no_green_tick_at_edges_and_says_nothing_twice(refused):
    table, control = refused
    m = ld.Moments.from_samples(table.drop(columns="context"), table["context"], control)
    made = report.collect(ld.fit(m), m)
    status = {check["id"]: check["status"] for check in made["checks"]}
    assert made["verdict"]["status"] == status["membership"] == "bad"
    assert "good" not in {status.get(name) for name in ("edges", "order", "ambiguous")}
    texts = [*made["verdict"]["reasons"], *(check["text"] for check in made["checks"])]
    sentences = [part for text in texts for part in re.split(r"(?<=\.) ", text) if len(part) > 60]
    assert len(sentences) == len(set(sentences))


def test_the_reports_tests_add_a_refusal_that_the_fit_did_not_make(refused):
    """A fit by a closed form asks nothing; the tests of the report do, and summary and page say the same."""
    table, control = refused
    m = ld.Moments.from_samples(table.drop(columns="context"), table["context"], control)
    fit = ld.fit(m, "closed-form")
    assert REFUSED not in str(fit.verdict)
    results = report.Results(fit, m)
    assert results.report["verdict"]["status"] == "bad"
    assert REFUSED in results.report["verdict"]["text"]
    assert results.summary.endswith(results.report["verdict"]["text"])


def test_what_is_fine_says_so_once():
    m = ld.simulate.random_model(3, 5, rng=1).moments(5_000)
    results = report.Results(ld.fit(m), m)
    assert results.report["verdict"]["status"] in ("good", "note")
    assert results.report["verdict"]["reasons"] == []
    assert str(results.fit.verdict) == results.report["verdict"]["text"]


def test_tl_warns_and_the_estimator_keeps_the_verdict(refused):
    table, control = refused
    X, y = table.drop(columns="context"), table["context"]
    model = ld.LatentDAG(control=control).fit(X, y)
    assert REFUSED in str(model.verdict_)
    adata = ad.AnnData(X.to_numpy(), obs=pd.DataFrame({"guide": y.to_numpy()}, index=np.arange(len(y)).astype(str)))
    with pytest.warns(ld.errors.VerdictWarning, match=REFUSED) as raised:
        tl.latentdag(adata, "guide", control=control)
    assert raised[0].filename == __file__
