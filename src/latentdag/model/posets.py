"""Partial orders as boolean matrices: closure, reduction, linear extensions.

A partial order over d elements is a boolean (d, d) matrix with ``order[i, j]`` true iff ``i ≺ j``: in this package, iff
*j is an ancestor of i*. That is the paper's convention, in which sources come last and structural matrices are upper
triangular. Every public function also takes a :class:`networkx.DiGraph` whose edges point from parent to child.
"""

from collections.abc import Sequence

import networkx as nx
import numpy as np

from latentdag.core.linalg import BoolArray


def order_matrix(order: "nx.DiGraph | np.ndarray | Sequence[Sequence[bool]]", size: int | None = None) -> BoolArray:
    """Return the closed partial order (d, d), as a boolean matrix, of a DAG or of any relation.

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
    """Return all pairs connected by a path (d, d), in O(log d) boolean matrix products.

    Examples
    --------
    >>> transitive_closure(np.eye(3, k=1, dtype=bool)).astype(int)
    array([[0, 1, 1],
           [0, 0, 1],
           [0, 0, 0]])
    """
    closed = relation.astype(bool)
    while True:
        longer = closed | (closed.astype(np.float32) @ closed.astype(np.float32) > 0)
        if np.array_equal(longer, closed):
            return closed
        closed = longer


def transitive_reduction(closed: BoolArray) -> BoolArray:
    """Return the covering relation (d, d) of a closed partial order: the pairs with nothing in between.

    Examples
    --------
    >>> transitive_reduction(np.triu(np.ones((3, 3), dtype=bool), k=1)).astype(int)
    array([[0, 1, 0],
           [0, 0, 1],
           [0, 0, 0]])
    """
    return closed & ~(closed.astype(np.float32) @ closed.astype(np.float32) > 0)


def linear_extension(relation: BoolArray) -> list[int]:
    """Return one element of S(G): a total order, smallest element first, smallest index first among the free.

    In the paper's convention it lists the sinks first; reverse it for "sources first".

    Examples
    --------
    >>> linear_extension(order_matrix(nx.DiGraph([(0, 1), (1, 2)])))  # 0 → 1 → 2
    [2, 1, 0]
    """
    smaller_first = nx.from_numpy_array(order_matrix(relation), create_using=nx.DiGraph)
    return list(nx.lexicographical_topological_sort(smaller_first))


def is_linear_extension(order: Sequence[int], relation: BoolArray) -> bool:
    """Return True if listing the elements as ``order``, smallest first, violates no pair of the relation.

    Examples
    --------
    >>> chain = order_matrix(nx.DiGraph([(0, 1), (1, 2)]))
    >>> is_linear_extension([2, 1, 0], chain), is_linear_extension([0, 1, 2], chain)
    (True, False)
    """
    position = np.argsort(order)  # of a permutation: its inverse
    i, j = np.nonzero(relation)
    return bool((position[i] < position[j]).all())


def closure_graph(graph: nx.DiGraph) -> nx.DiGraph:
    """Return the DAG of the ancestor relation (the paper's closure Ḡ of G), on the same nodes.

    Examples
    --------
    >>> sorted(closure_graph(nx.DiGraph([("c", "b"), ("b", "a")])).edges)
    [('b', 'a'), ('c', 'a'), ('c', 'b')]
    """
    closed: nx.DiGraph = nx.DiGraph()
    closed.add_nodes_from(graph.nodes)
    closed.add_edges_from(nx.transitive_closure_dag(graph).edges)
    return closed
