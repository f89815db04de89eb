"""Plans in the terminal, in figures and in the report say what ``ld.design`` says."""

import json

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from typer.testing import CliRunner

import latentdag as ld
from latentdag.cli.app import app

run = CliRunner().invoke


@pytest.fixture(scope="module")
def truth():
    return ld.simulate.random_model(3, 6, density=1, convention="text", rng=3)


@pytest.fixture(scope="module")
def pilot(truth):
    return ld.fit(ld.simulate.sample_moments(truth, 600, rng=1))


@pytest.fixture(scope="module")
def folder(truth, pilot, tmp_path_factory):
    folder = tmp_path_factory.mktemp("design")
    truth.save(folder / "truth.npz")
    pilot.save(folder / "fit.npz")
    return folder


def asked(folder, *arguments, source="fit.npz"):
    done = run(app, ["design", str(folder / source), *arguments, "--out", str(folder / "plan.csv"), "--json"])
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout), pd.read_csv(folder / "plan.csv")


def test_the_command_says_what_the_library_says(folder, pilot, truth):
    said, table = asked(folder, "--power", "300", "--no-searched")
    plan = ld.design.power(pilot, 300, searched=False)
    np.testing.assert_allclose(table["power"], plan["power"])
    assert [row["target"] for row in said["table"]] == plan["target"].tolist()
    said, table = asked(folder, "--budget", "2000")
    assert table["cells"].sum() == 2_000
    assert said["saved"] == pytest.approx(ld.design.allocate(pilot, 2_000).attrs["saved"])
    _, table = asked(folder, "--needed", "0.8", "--no-searched", source="truth.npz")
    np.testing.assert_allclose(table["cells"], ld.design.samples_needed(truth, 0.8, searched=False)["cells"])
    _, table = asked(folder, "--next", "edges")
    assert table["targets"].iloc[0] == " + ".join(ld.design.next_context(pilot)["targets"].iloc[0])


def test_the_terminal_shows_table_and_chances(folder):
    done = run(app, ["design", str(folder / "fit.npz"), "--power", "300", "--out", str(folder / "plan.csv")])
    assert "half_width" in done.stdout
    assert "p_order" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "ask one question"),
        (["--power", "300", "--budget", "100"], "ask one question"),
        (["--power", "0"], "must be a whole number, 3 or more, got 0"),
        (["--budget", "5"], "below the floors"),
        (["--next", "fun"], "for_ must be one of"),
    ],
)
def test_bad_questions_end_with_one_line(folder, arguments, words):
    done = run(app, ["design", str(folder / "fit.npz"), *arguments, "--out", str(folder / "plan.csv")])
    assert done.exit_code == 2
    assert words in done.stderr


def test_the_figure_draws_every_edge(pilot):
    curve = ld.design.power_curve(pilot, [500, 2_000], searched=False)
    ax = ld.pl.power_curve(curve)
    assert len(ax.lines) == len(pilot.graph.edges)  # and no order: nothing was searched
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert sorted(names) == sorted(f"{a} → {b}" for a, b in pilot.graph.edges)
    for line in ax.lines:
        source, target = line.get_label().split(" → ")
        mine = curve[(curve["source"] == source) & (curve["target"] == target)]
        np.testing.assert_allclose(line.get_ydata(), mine["power"])
    searched = ld.pl.power_curve(pilot, totals=[2_000, 4_000])
    assert searched.lines[-1].get_label() == "order right"
    plt.close("all")


def test_the_report_says_what_twice_the_cells_would_find(pilot):
    made = ld.report.collect(pilot)
    twice = ld.design.power(pilot, 1_200)
    assert [row["power"] for row in made["plan"]] == pytest.approx(twice["power"].tolist())
    assert [row["half_width_now"] for row in made["plan"]] == pytest.approx((2**0.5 * twice["half_width"]).tolist())
    assert "plan" in [table["id"] for table in made["tables"]]


def test_reports_of_fits_without_errors_have_no_plan(truth):
    assert ld.report.collect(ld.fit(truth.moments(500), method="closed-form"))["plan"] == []
