"""The light tunnel behind maps that nobody tried before: what must come out, whatever the map and the rows."""

import numpy as np
import pytest

import latentdag as ld
import studies.light_tunnel
from latentdag.datasets import containers, light_tunnel
from studies.__main__ import main
from studies.decompositions import decompose
from studies.light_tunnel import machine as tunnel
from studies.light_tunnel.scores import cosines, edge_scores, expected_weight, fit_scores

from paths import SHARED
from runs import check_folder

here = pytest.mark.skipif(
    not (SHARED / "light_tunnel").is_dir(),
    reason=f"no light_tunnel beside the repository; set {containers.ENVIRONMENT} to the folder that has it",
)


@pytest.fixture(autouse=True)
def data(monkeypatch):
    if (SHARED / "light_tunnel").is_dir():
        monkeypatch.setenv(containers.ENVIRONMENT, str(SHARED))


def hidden(name, share, seed, times=1):
    true = tunnel.read(tunnel.SETS[name])
    draw = true.draw(times * len(true.latents), share, np.random.default_rng(seed))
    return true, draw, ld.Moments.from_samples(draw.X, draw.contexts, control=tunnel.CONTROL)


@here
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("name", ["colours and sensors", "all ten contexts"])
def test_structural_rows_and_order_behind_any_map(name, times):
    seed = np.random.SeedSequence().entropy  # another map each time, as for a user
    true, draw, m = hidden(name, 1.0, seed, times)
    found = fit_scores(true, draw, ld.fit(m, intervention="soft"))
    assert found["cosine"] > 0.98, seed
    assert found["colours_first"], seed
    assert found["converged"], seed


@here
@pytest.mark.parametrize("seed", [1, 2])
def test_edges_on_half_of_the_rows(seed):
    """No colour acts on another; all but one of nine sensors' edges are found, and all nine once roles are known."""
    true, draw, m = hidden("colours and sensors", 0.5, seed)
    blind = edge_scores(true, draw, ld.fit(m))
    assert blind["false_between_colours"] == 0
    assert blind["false_between_sensors"] == 0
    assert blind["colour_edges"] >= 8 / 9 - 1e-9
    roles = [
        (u, v) for u in true.latents for v in true.latents if u != v and (v in tunnel.LAMPS or u in tunnel.SENSORS)
    ]
    told = edge_scores(true, draw, ld.fit(m, forbidden=roles))
    assert told["edges_exact"]
    assert told["false_between_sensors"] == told["false_between_colours"] == 0
    assert told["weight_error_all"] < 0.05


@here
def test_shared_noise_is_not_recovered_and_the_test_says_so():
    true, draw, m = hidden("shared noise", 0.5, 0)
    fit = ld.fit(m, intervention="soft")
    assert fit_scores(true, draw, fit)["cosine"] < 0.9
    assert not ld.membership_test(m, data=(draw.X, draw.contexts)).in_model


@here
def test_what_polarisers_multiply_is_refused_and_no_context_is_blamed():
    """Colours reach ir_3 through two polarisers: no linear model, though every context has its one target."""
    knobs = ["red_strong", "green_strong", "blue_strong", "t_ir_1_strong", "t_ir_2_strong", "v_c_strong"]
    screen = light_tunnel(experiments=knobs, columns=[*tunnel.COLOURS, *tunnel.SENSORS, "pol_1", "pol_2", "ir_3"])
    found = ld.membership_test(screen.moments(), data=(screen.X, screen.contexts))
    assert not found.in_model
    assert found.summary["reject_fwer"].sum() == 4
    assert found.drop == ()
    assert "dropping contexts does not help" in found.verdict
    assert 0.005 < found.omnibus.unexplained < 0.03


@here
def test_what_is_known_of_the_machine():
    true = tunnel.read(tunnel.SETS["all ten contexts"])
    assert list(true.Z) == [tunnel.CONTROL, *true.latents]
    lamps = [true.latents.index(name) for name in true.latents if name in tunnel.LAMPS]
    assert (true.equations[lamps] == np.eye(len(true.latents))[lamps]).all()
    assert [row["value"] for row in tunnel.facts() if row["fact"] == "twin noise"] == pytest.approx([0.75], abs=0.01)
    assert expected_weight(true, "red", "ir_1", "control") == pytest.approx(0.75, abs=0.05)
    draw = true.draw(10, 0.5, np.random.default_rng(0))
    assert len(draw.X) == sum(len(Z) for Z in true.Z.values()) // 2
    assert np.linalg.matrix_rank(draw.G) == 10


@here
@pytest.mark.slow
def test_the_study_runs(tmp_path):
    assert main(["light_tunnel", "--quick", "--models", "1", "--out", str(tmp_path)]) == 0
    rows, said = check_folder(tmp_path / "light_tunnel", 30, studies.light_tunnel.STUDY)
    assert "python -m studies light_tunnel --models 1" in (tmp_path / "light_tunnel/README.md").read_text()
    assert set(rows["set"]) == {"colours and sensors", "shared noise", ""}
    ours = rows[(rows["method"] == "likelihood") & (rows["set"] == "colours and sensors") & (rows["share"] >= 0.5)]
    others = rows[rows["method"].isin(["projection", "PCA", "FactorAnalysis", "FastICA"])]
    assert ours["cosine"].min() > 0.98
    assert others["cosine"].max() < 0.98
    assert len(said["tables"]) == 3


def test_a_study_without_its_data_says_where_to_get_them(tmp_path, monkeypatch, capsys):
    def absent(latents):
        raise FileNotFoundError("the data set light_tunnel is not here")

    monkeypatch.setattr(studies.light_tunnel, "read", absent)
    assert main(["light_tunnel", "--quick", "--out", str(tmp_path)]) == 2
    assert "error: the data set light_tunnel is not here" in capsys.readouterr().err
    assert not (tmp_path / "light_tunnel/README.md").exists()


def test_second_moments_about_the_control():
    rng = np.random.default_rng(0)
    X, contexts = rng.normal(size=(200, 3)), np.repeat(["a", "b"], 100)
    X[100:] += [5.0, 0.0, 0.0]
    m = ld.Moments.from_samples(X, contexts, control="a")
    moved = studies.light_tunnel.about_the_control(m)
    centred = X[100:] - X[:100].mean(axis=0)
    np.testing.assert_allclose(moved.covariances[1], centred.T @ centred / 100, rtol=0.05, atol=0.1)
    np.testing.assert_allclose(moved.covariances[0], m.covariances[0])


def test_decompositions_are_linear_maps_of_the_samples():
    X = np.random.default_rng(0).laplace(size=(2_000, 3)) @ np.array(
        [[1.0, 0.4, 0.1], [0.0, 1.0, 0.3], [0.2, 0.0, 1.0]]
    )
    maps = decompose(X, 3)
    assert {W.shape for W in maps.values()} == {(3, 3)}
    np.testing.assert_allclose(maps["PCA"] @ maps["PCA"].T, np.eye(3), atol=1e-10)
    likeness = cosines(maps["FastICA"], np.linalg.inv(np.array([[1, 0.4, 0.1], [0, 1, 0.3], [0.2, 0, 1]])).T)
    assert likeness.max(axis=0).min() > 0.98
