"""Documentation: numbers are those of the files they come from, names in tables exist, and the site builds."""

import importlib
import re
import subprocess
import sys

import pytest

from latentdag import experiments
from loading import load

from paths import ROOT

quoted = load(ROOT / "docs" / "quoted.py")


@pytest.mark.parametrize("page", quoted.pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_numbers_are_those_of_their_source(page):
    text = page.read_text(encoding="utf-8")
    assert quoted.filled(text) == text, "make numbers"
    assert text.count("<!-- from ") == text.count("<!-- end -->") == len(quoted.QUOTE.findall(text))


def test_quotations_are_filled_in(tmp_path):
    (tmp_path / "a.txt").write_text("method  right\nours    0.981\n")
    line = "right in <!-- from a.txt: {ours ? :.0%} -->?<!-- end --> of them"
    assert quoted.filled(line, tmp_path) == line.replace(">?<", ">98%<")
    table = "<!-- from a.txt:\n| | right |\n| --- | --- |\n| ours | {ours ?} |\n-->\nold\n<!-- end -->"
    new = quoted.filled(table, tmp_path)
    assert "\n| ours | 0.981 |\n" in new
    assert "old" not in new
    assert quoted.filled(new, tmp_path) == new


@pytest.mark.parametrize(("address", "said"), [("theirs ?", "0 lines"), ("* ?", "2 lines")])
def test_a_number_never_comes_from_another_line(tmp_path, address, said):
    (tmp_path / "a.txt").write_text("ours 1\nours 2\n")
    with pytest.raises(LookupError, match=f"a.txt: {said}"):
        quoted.filled(f"<!-- from a.txt: {{{address}}} -->1<!-- end -->", tmp_path)


def test_the_table_of_the_paper_names_tests_that_exist():
    page = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(test_\w+)::([\w:]+)`", page)) - {("test_x", "name")}
    assert len(named) > 50
    for file, name in named:
        code = next((ROOT / "tests").glob(f"*/{file}.py")).read_text(encoding="utf-8")
        assert all(re.search(rf"\b(def|class) {part}\b", code) for part in name.split("::")), f"{file}::{name}"


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.stem)
def test_pages_name_functions_that_exist(page):
    for name in set(re.findall(r"`(latentdag(?:\.\w+)+)`", page.read_text(encoding="utf-8"))):
        assert resolve(name) is not None, name


def test_citations_of_the_mathematics_name_a_section():
    """The syntax is ``docs/math.md, The likelihood``: path, comma, heading; a line may break within it."""
    headings = re.findall(r"^## (.+)$", (ROOT / "docs" / "math.md").read_text(encoding="utf-8"), re.MULTILINE)
    section = re.compile(r", (?:section )?\"?(" + "|".join(map(re.escape, headings)) + r")\b")
    cited = set()
    for path in cited_in():
        text = re.sub(r"\s*\n[\s#:]*", " ", path.read_text(encoding="utf-8"))
        for found in re.finditer(r"docs/math\.md", text):
            named = section.match(text, found.end())
            assert named, f"{path.relative_to(ROOT)}: …{text[found.start() : found.end() + 60]}… names no section"
            cited.add(named[1])
    assert len(cited) > 5


def cited_in():
    """Files in which a citation of the mathematics must name a section."""
    folders = (ROOT / name for name in ("src", "tests", "benchmarks", "studies"))
    return [path for folder in folders for path in folder.rglob("*.py") if path.parent.name != "repository"]


def test_nothing_cites_a_file_that_is_not_in_the_repository():
    old = "MATH" + ".md"
    assert [
        str(path.relative_to(ROOT))
        for path in [*cited_in(), *(ROOT / "docs").rglob("*.md")]
        if old in path.read_text(encoding="utf-8")
    ] == []


def resolve(name):
    """The module, or the attribute of one, with this dotted name."""
    parts = name.split(".")
    here = importlib.import_module(parts[0])
    for i, part in enumerate(parts[1:], 2):
        if not hasattr(here, part):
            here = importlib.import_module(".".join(parts[:i]))
        else:
            here = getattr(here, part)
    return here


@pytest.mark.slow
def test_the_site_builds_without_warnings(tmp_path):
    pytest.importorskip("myst_nb", reason="the site is built with the packages of the group 'docs'")
    for name in experiments.NAMES:  # a run here would take minutes; make docs does it
        if not any(
            (ROOT / "docs" / place / name / "README.md").is_file() for place in ("experiments", "_build/experiments")
        ):
            pytest.skip(f"no run of {name} is committed in docs/experiments")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-d", tmp_path / "trees"]
    done = subprocess.run([*command, ROOT / "docs", tmp_path / "html"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for page in ("index", "tutorials/from_zero", "gallery/index", "api/fit", "api/commands"):
        assert (tmp_path / "html" / f"{page}.html").is_file()
