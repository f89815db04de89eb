"""How much memory moments need, said before anything is read."""

from pathlib import Path

#: Share of the memory that is free now which moments may take unless the user says otherwise.
SHARE = 0.8


def require(where: str, n_contexts: int, n_features: int, matrices: int, extra: int, limit: float | None) -> str:
    """Check that all covariances fit in memory; a sentence that says how much they need.

    Parameters
    ----------
    where : str
        The source, for messages.
    n_contexts, n_features : int
    matrices : int
        How many p × p matrices every context needs at the same time.
    extra : int
        Bytes for blocks of rows.
    limit : bytes, or None for 80 % of what is free now

    Raises
    ------
    ValueError
        Saying what would fit.
    """
    need = 8 * n_contexts * n_features**2 * matrices
    text = (
        f"{where}: {n_contexts} contexts × {n_features:,}² features × 8 bytes"
        f"{f' × {matrices} copies' if matrices > 1 else ''} = {_size(need)} for covariances, "
        f"{_size(extra)} for blocks of rows"
    )
    free = available()
    if limit is None and free is None:
        return text
    allowed = limit if limit is not None else SHARE * float(free or 0)
    if need + extra <= allowed:
        return text
    fitting = int((max(allowed - extra, 0) / (8 * n_contexts * matrices)) ** 0.5)
    source = "memory_limit allows" if limit is not None else f"{SHARE:.0%} of the free memory is"
    raise ValueError(
        f"{text}, but {source} {_size(allowed)}. Take fewer features (features=…, the most variable ones, say; about "
        f"{fitting:,} fit), leave out contexts, merge those that belong together, or set memory_limit= (bytes) if you "
        "know better"
    )


def available() -> int | None:
    """Bytes that this process may still take, where the system tells."""
    found = [size for size in (_free(), _left_in_group()) if size is not None]
    return min(found) if found else None


def _free() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return None


def _left_in_group() -> int | None:
    """Containers are often given less than the machine has."""
    try:
        group = Path("/sys/fs/cgroup")
        limit, used = (group / "memory.max").read_text().strip(), int((group / "memory.current").read_text())
        counts = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        used -= int(counts.get("inactive_file", 0))  # cached files make room when asked
        return None if limit == "max" else max(int(limit) - used, 0)
    except (OSError, ValueError):
        return None


def _size(size: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.3g} TB"
