"""Print the oldest versions that pyproject.toml admits, one pin a line: constraints for pip. See `make test-oldest`."""

import re
import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"


def requirements(*groups):
    """What the project asks for: always, for its extras, and for these dependency groups."""
    declared = tomllib.loads(PROJECT.read_text(encoding="utf-8"))
    project, extras = declared["project"], declared["project"]["optional-dependencies"]
    groups = {name: declared["dependency-groups"][name] for name in groups}
    asked = [*project["dependencies"], *(line for lines in (extras | groups).values() for line in lines)]
    return [line for line in asked if not line.startswith(f"{project['name']}[")]


def floors(*groups):
    """The version after ``>=``, by package; a requirement without one has no floor, and is refused."""
    found = {line: re.fullmatch(r"([\w.-]+)(?:\[[\w,]+\])?>=([\w.]+)", line) for line in requirements(*groups)}
    if without := [line for line, match in found.items() if match is None]:
        raise ValueError(f"give every requirement in {PROJECT.name} a floor, name>=version: {', '.join(without)}")
    return {match[1]: match[2] for match in found.values()}


if __name__ == "__main__":
    sys.stdout.writelines(f"{name}=={version}\n" for name, version in floors("test").items())
