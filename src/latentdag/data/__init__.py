"""Data becomes moments: one count, mean and covariance per context, from any source, in one pass.

The walk, front to back:

===============  ===============================================================================
``sources``      a reader for each kind of source; it knows its labels and yields blocks of rows
``prepare``      the plan: contexts, control, covariates, a first look at the rows, memory
``passes``       walks over the rows: blocks in order, going on where a killed run stopped, or
                 those of Dask in place
``dask_pass``    adds up a Dask array where its chunks are
``basis``        dimensions that all contexts share, found in a first pass, and the rows in them
``accumulate``   the one accumulator behind both passes
``counts``       counts read as rates, and the noise of counting
``adjust``       covariates regressed out
``cloud``        center and scatter of a context, and how much a row weighs by its distance
``robust``       the weights of all rows: those far from the others count less
``moments``      ``Moments``, what everything after this room works from
``checks``       what moments must satisfy, and what every method needs of them
``stream``       the public door for data larger than memory; their samples once more
===============  ===============================================================================

Beside the walk:

===============  ===============================================================================
``labels``       names of contexts and features
``matrices``     what counts as a matrix of numbers
``collinear``    digits that covariances forget
``store``        files without pickle, written whole or not at all
``schema``       what a file of each kind holds
===============  ===============================================================================
"""
