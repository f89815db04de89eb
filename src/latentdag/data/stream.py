"""Moments of data larger than memory: files and folders, AnnData, Dask arrays. See :func:`moments`."""

from latentdag.data.dask_pass import dask_moments
from latentdag.data.passes import moments
from latentdag.data.second_pass import Pieces, pieces

__all__ = ["Pieces", "dask_moments", "moments", "pieces"]
