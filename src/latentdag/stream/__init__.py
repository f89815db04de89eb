"""Moments of data larger than memory: files and folders, AnnData, Dask arrays. See :func:`moments`."""

from latentdag.stream.cluster import dask_moments
from latentdag.stream.one_pass import moments
from latentdag.stream.pieces import Pieces, pieces

__all__ = ["Pieces", "dask_moments", "moments", "pieces"]
