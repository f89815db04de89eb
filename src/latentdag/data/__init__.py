"""Data becomes moments: one count, mean and covariance per context, from any source, in one pass.

The walk, front to back::

    sources/       a reader for each kind of source; it knows its labels and yields blocks of rows
    prepare        the plan: contexts, control, covariates, a first look at the rows, memory
    passes         adds up blocks in order, and can go on where a killed run stopped (resume)
    dask_pass      adds up a Dask array where its chunks are
    accumulate     the one accumulator behind both (blas: its two products)
    adjust         covariates regressed out
    moments        Moments, what everything after this package works from (checks: what they must satisfy)
    stream         the public door for data larger than memory
    second_pass    the samples once more, for what two moments cannot tell

Beside the walk: ``labels`` (names of contexts and features), ``matrices`` (what counts as a matrix of numbers),
``collinear`` (digits that covariances forget), ``store`` and ``schema`` (files without pickle).
"""
