"""What a run of an experiment or a study leaves in its folder."""

import json

import pandas as pd


def check_folder(folder, rows_at_least, experiment):
    """Check all that an experiment must leave behind; returns its rows and its summary."""
    rows, said = pd.read_parquet(folder / "runs.parquet"), json.loads((folder / "summary.json").read_text())
    assert len(rows) >= rows_at_least
    assert said["experiment"] == folder.name
    assert said["findings"]
    assert all(said["tables"].values())
    page = (folder / "README.md").read_text()
    assert f"{said['models']} {experiment.unit}" in page
    assert f"seed {said['seed']}" in page
    assert all(sentence in page for sentence in said["findings"])
    figures = sorted(path.stem for path in folder.glob("*.svg"))
    assert figures
    for name in figures:
        assert (folder / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
        assert f"({name}.svg)" in page
    return rows, said
