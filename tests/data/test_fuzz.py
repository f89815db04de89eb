"""Any rows through any door give the exact numbers or a clear refusal; a damaged file does too.

`benchmarks/fuzz.py` does the same at full size.
"""

import pytest

from damaged import many_files
from differential import many_cases, together


def total(counts, how):
    return sum(number for (_, ended), number in counts.items() if ended == how)


@pytest.mark.filterwarnings("ignore")
def test_every_door_gives_the_exact_numbers_or_a_clear_refusal(tmp_path):
    counts, bad = together(many_cases(seed=1, numbers=range(150), folder=tmp_path, doors=1))
    assert bad == []
    assert total(counts, "accepted") > 300
    assert total(counts, "refused") > 30  # some rows have no right answer


@pytest.mark.filterwarnings("ignore")
def test_a_damaged_file_gives_what_other_readers_see_or_a_clear_refusal(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    counts, bad = together(many_files(seed=1, numbers=range(100), folder=tmp_path))
    assert bad == []
    assert total(counts, "refused") > 50  # the damage is real
    assert total(counts, "accepted") > 5
