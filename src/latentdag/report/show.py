"""How values read, by the kind of their column; the same in HTML and markdown."""

from typing import Any


def show(value: Any, kind: str = "text") -> str:
    """A value as text for people.

    >>> [show(-0.04567, "number"), show(3.2e-9, "p"), show(0.0, "p"), show(12345, "count"), show(0.5, "share")]
    ['−0.0457', '3.2e−09', '< 1e−300', '12,345', '50 %']
    >>> show(None, "p"), show(["a", "b"], "list"), show(True, "yes")
    ('–', 'a, b', 'yes')
    """
    if value is None or value == "" or value == []:
        return "–"
    if kind == "list":
        return ", ".join(map(str, value))
    if kind == "yes":
        return "yes" if value else "no"
    if kind == "count":
        return f"{value:,}"
    if kind == "share":
        return f"{100 * value:.3g} %".replace("-", "−")
    if kind == "p":
        return "< 1e−300" if value == 0 else (f"{value:.3f}" if value >= 0.001 else f"{value:.1e}").replace("-", "−")
    if kind == "number":
        shown = f"{value:,.0f}" if 1000 <= abs(value) < 1e6 else f"{value:#.3g}" if value else "0"
        return shown.replace("-", "−")
    return str(value)
