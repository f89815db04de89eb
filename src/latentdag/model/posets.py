"""Partial orders as boolean matrices: closure, reduction, linear extensions.

A partial order over d elements is a boolean (d, d) matrix with ``order[i, j]`` true iff ``i ≺ j``: in this package, iff
*j is an ancestor of i*. That is the paper's convention, in which sources come last and structural matrices are upper
triangular. Every public function also takes a :class:`networkx.DiGraph` whose edges point from parent to child.
"""

from collections.abc import Hashable, Sequence

import networkx as nx
import numpy as np

from latentdag.core.linalg import BoolArray


def order_matrix(order: "nx.DiGraph | np.ndarray | Sequence[Sequence[bool]]", size: int | None = None) -> BoolArray:
    """The closed partial order, as a boolean matrix, of a DAG or of any relation.

    Parameters
    ----------
    order : DiGraph or (d, d) array_like of bool
        A graph's nodes are the rows 0..d−1 if they are those integers, otherwise rows in the graph's node order.
    size : int, optional
        The number of elements expected, for the error message.

    Examples
    --------
    >>> import networkx as nx
    >>> order_matrix(nx.DiGraph([(2, 1), (1, 0)])).astype(int)  # 2 → 1 → 0
    array([[0, 1, 1],
           [0, 0, 1],
           [0, 0, 0]])
    """
    if isinstance(order, nx.DiGraph):
        nodes = list(order.nodes)
        rows = sorted(nodes) if set(nodes) == set(range(len(nodes))) else nodes
        relation = nx.to_numpy_array(order, nodelist=rows, weight=None).T > 0
    else:
        relation = np.asarray(order)
        if relation.ndim != 2 or relation.shape[0] != relation.shape[1]:
            raise ValueError(f"a partial order is a DiGraph or a square boolean matrix, got shape {relation.shape}")
        relation = relation.astype(bool)
    if size is not None and len(relation) != size:
        raise ValueError(f"the partial order has {len(relation)} elements where {size} are needed")
    closed = transitive_closure(relation)
    if np.diagonal(closed).any():
        cyclic = np.flatnonzero(np.diagonal(closed)).tolist()
        raise ValueError(f"not a partial order: elements {cyclic} lie on a cycle")
    return closed


def transitive_closure(relation: BoolArray) -> BoolArray:
    """All pairs connected by a path, in O(log d) boolean matrix products."""
    closed = relation.astype(bool)
    while True:
        longer = closed | (closed.astype(np.float32) @ closed.astype(np.float32) > 0)
        if np.array_equal(longer, closed):
            return closed
        closed = longer


def transitive_reduction(closed: BoolArray) -> BoolArray:
    """The covering relation of a closed partial order: pairs with nothing in between."""
    return closed & ~(closed.astype(np.float32) @ closed.astype(np.float32) > 0)


def linear_extension(relation: BoolArray) -> list[int]:
    """One total order, smallest element first, smallest index first among the free.

    In the paper's convention it lists the sinks first; reverse it for "sources first".
    """
    below = relation.copy()
    left = set(range(len(relation)))
    order: list[int] = []
    while left:
        # an element can come next once nothing that remains lies below it
        free = next((j for j in sorted(left) if not below[:, j].any()), None)
        if free is None:
            raise ValueError(f"not a partial order: elements {sorted(left)} lie on or above a cycle")
        order.append(free)
        left.remove(free)
        below[free, :] = False
    return order


def is_linear_extension(order: Sequence[int], relation: BoolArray) -> bool:
    """Whether listing the elements as ``order``, smallest first, violates no pair of the relation."""
    position = np.empty(len(order), dtype=int)
    position[list(order)] = np.arange(len(order))
    i, j = np.nonzero(relation)
    return bool((position[i] < position[j]).all())


def closure_graph(graph: nx.DiGraph) -> nx.DiGraph:
    """The DAG of the ancestor relation (the paper's closure of G), on the same nodes."""
    below: dict[Hashable, dict[Hashable, None]] = {}
    for node in reversed(list(nx.topological_sort(graph))):
        below[node] = {}
        for child in graph.successors(node):
            if child not in below[node]:  # else all below it are there, too
                below[node][child] = None
                below[node] |= below[child]
    closed: nx.DiGraph = nx.DiGraph()
    closed.add_nodes_from(graph.nodes)
    closed.add_edges_from((node, other) for node in graph.nodes for other in below[node])
    return closed
