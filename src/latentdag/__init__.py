"""latentdag: causal variables that nobody measured, and the graph between them, learned from experiments."""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.1.0"

# Where each public name lives is said once, in the stub beside this file. Names are imported on first use, so that
# `latentdag --help` and `import latentdag` are instant.
_STUB = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
_HOME = {name: home for home, name in re.findall(r"^from latentdag\.(\S+) import (\w+) as", _STUB, re.M)}
_MODULES = {name: f"{room}.{name}".strip(".") for room, name in re.findall(r"^from \.(\S*) import (\w+)", _STUB, re.M)}

__all__ = [*_HOME, *_MODULES, "__version__"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"latentdag.{_HOME[name]}"), name)
    if name in _MODULES:
        return import_module(f"latentdag.{_MODULES[name]}")
    raise AttributeError(f"module 'latentdag' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
