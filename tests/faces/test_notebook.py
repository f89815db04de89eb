"""Objects show themselves in notebooks: small tables, nothing of a label taken for HTML."""

import re

import pytest

import latentdag as ld

NASTY = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def shown():
    truth = ld.simulate.random_model(3, 5, rng=1)
    m = ld.simulate.sample_moments(truth, 500, rng=0)
    m = ld.Moments.from_covariances(
        m.covariances, m.counts, ["control", NASTY, "b&c", "c3"], means=m.means, feature_names=[NASTY, *"abcd"]
    )
    fit = ld.fit(m)
    return {"moments": m, "fit": fit, "model": fit.model}


@pytest.mark.parametrize("name", ["moments", "fit", "model"])
def test_what_is_shown_is_a_table_that_follows_the_theme(shown, name):
    page = shown[name]._repr_html_()
    assert NASTY not in page
    assert "&lt;script&gt;" in page
    assert not re.search(r"color|background", page)
    assert page.count("<tr") - 1 - (name == "model") == len(
        shown[name].contexts if name == "moments" else shown[name].latents
    )


def test_a_fit_shows_its_verdict_and_the_moments_their_counts(shown):
    assert str(shown["fit"].verdict).split(":")[0] in shown["fit"]._repr_html_().replace("&#x27;", "'")
    assert shown["moments"]._repr_html_().count("<td>500</td>") == 4
