"""A small sample of the rows of every context, for a first robust guess: which rows, and how to get them.

Rows are chosen by what they hold: each has a key, a hash of its values, and the rows with the smallest keys are taken.
So the choice depends neither on the order of rows or features, nor on blocks or containers, and needs no seed.
"""

from typing import Any

import numpy as np

from latentdag.data.matrices import dense_rows

#: Rows of a context in the pilot, at most; and, where that is more, rows per feature.
PILOT_ROWS, ROWS_PER_FEATURE = 1000, 5

#: An odd number without pattern: the golden ratio in 64 bits.
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def row_keys(block: Any, _: np.ndarray) -> np.ndarray:
    """Return one key (n,) uint64 for every row of a block (n, p): the sum of the hashes of its values."""
    made = np.empty(block.shape[0], dtype=np.uint64)
    start = 0
    for rows in dense_rows(block, np.arange(len(made))):
        bits = np.ascontiguousarray(rows + 0.0).view(np.uint64)  # plus zero: there are two zeros, and they are equal
        made[start : start + len(rows)] = _mixed(bits).sum(axis=1)
        start += len(rows)
    return made


def _mixed(bits: np.ndarray) -> np.ndarray:
    """Return whole numbers shuffled, zero staying zero (the finaliser of splitmix64)."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(bits ^ (bits >> np.uint64(31)))


def pilot_rows(keys: np.ndarray, codes: np.ndarray, most: int) -> np.ndarray:
    """Return a mask (n,) of at most ``most`` rows of every context, those with the smallest keys.

    Copies of a row have the same key. They are numbered and get keys of their own, or all copies of a frequent row
    would be chosen together.

    Parameters
    ----------
    keys : (n,) uint64
    codes : (n,) position of each row's context
    most : int

    Examples
    --------
    >>> pilot_rows(np.array([7, 7, 7, 2, 9], dtype=np.uint64), np.array([0, 0, 0, 0, 1]), most=2).sum()
    np.int64(3)
    """
    order = np.lexsort((keys, codes))
    copy = _place_in_run(np.column_stack([codes[order].astype(np.uint64), keys[order]]))
    order = order[np.lexsort((_mixed(keys[order] + copy.astype(np.uint64) * _GOLDEN), codes[order]))]
    chosen = np.zeros(len(codes), dtype=bool)
    chosen[order[_place_in_run(codes[order][:, None]) < most]] = True
    return chosen


def _place_in_run(values: np.ndarray) -> np.ndarray:
    """Return how many equal rows stand right before each row of an array (n, c)."""
    place = np.arange(len(values))
    first = np.ones(len(values), dtype=bool)
    first[1:] = (values[1:] != values[:-1]).any(axis=1)
    return place - np.maximum.accumulate(np.where(first, place, 0))
