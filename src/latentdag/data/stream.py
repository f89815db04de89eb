"""Moments of data larger than memory: files and folders, AnnData, Dask arrays. See :func:`moments`."""

from latentdag.data.cluster import dask_moments
from latentdag.data.one_pass import moments
from latentdag.data.pieces import Pieces, pieces

__all__ = ["Pieces", "dask_moments", "moments", "pieces"]
