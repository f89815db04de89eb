"""A symmetric update in place, straight from SciPy's BLAS.

``scipy.linalg.blas`` has it too, but holds Python's lock while it works, so that no other thread could read the next
block meanwhile. SciPy publishes the addresses of its BLAS for compiled code (``scipy.linalg.cython_blas``), and ctypes
lets go of the lock during a call.
"""

import ctypes
from typing import Any

import numpy as np
from scipy.linalg import cython_blas


def _routine(name: str, n_arguments: int) -> Any:
    """Return a BLAS routine. All its arguments are addresses, as Fortran wants them."""
    capsule = vars(cython_blas)["__pyx_capi__"][name]
    signature = ctypes.pythonapi.PyCapsule_GetName
    signature.restype, signature.argtypes = ctypes.c_char_p, [ctypes.py_object]
    address = ctypes.pythonapi.PyCapsule_GetPointer
    address.restype, address.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    made = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * n_arguments)
    return made(address(capsule, signature(capsule)))


_syrk = _routine("dsyrk", 10)


def add_gram(X: np.ndarray, into: np.ndarray, scale: float = 1.0) -> None:
    """Add ``scale · Xᵀ X`` of rows X (n, p) to the lower triangle of a matrix (p, p); both C-ordered float64."""
    for array in (X, into):
        if array.dtype != np.float64 or not array.flags.c_contiguous:
            raise ValueError(f"BLAS needs C-ordered float64 arrays, got {array.dtype} with strides {array.strides}")
    if into.shape != (X.shape[1], X.shape[1]) or not into.flags.writeable:
        raise ValueError(f"cannot add to an array of shape {into.shape}")
    # To Fortran a C-ordered matrix is its own transpose: X is (p, n), and the lower triangle is the upper.
    upper, plain = ctypes.c_char(b"U"), ctypes.c_char(b"N")
    n, p = (ctypes.c_int(size) for size in X.shape)
    alpha, beta = ctypes.c_double(scale), ctypes.c_double(1.0)
    arguments: list[Any] = [upper, plain, p, n, alpha, X, p, beta, into, p]
    _syrk(*[a.ctypes.data if isinstance(a, np.ndarray) else ctypes.addressof(a) for a in arguments])
