"""A damaged header can ask for terabytes: then the command should say so, not be killed by the system."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Address space that opening a file may take at least, and per byte on disk.
LEAST, PER_BYTE = 2**30, 30


@contextmanager
def bounded_memory(path: Path) -> Iterator[None]:
    """While a file is opened, memory in proportion to its size; where the system has no such limit, no bound."""
    try:
        import resource

        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except (ImportError, OSError):
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = used + max(LEAST, PER_BYTE * size_on_disk(path))
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY:
        wanted = min(wanted, soft)
    resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))
    try:
        yield
    except MemoryError:
        raise ValueError(f"{path} is damaged: opening it would take far more memory than it has bytes") from None
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def size_on_disk(path: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    if path.is_dir():
        return sum(part.stat().st_size for part in path.rglob("*") if part.is_file())
    return path.stat().st_size if path.is_file() else 0
