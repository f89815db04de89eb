"""Where rows come from: one file for each kind of source, each of which only yields blocks of rows.

=============  =========================================================================
``opening``    chooses the reader that a source needs, by its type or its name on disk
``reader``     says what every reader can do: name features, label rows, hand out blocks;
               and does it for matrices that can be sliced by rows, Dask arrays included,
               and for the rows of another reader with other features
``tables``     pandas, polars and pyarrow; parquet, .csv and .tsv, also compressed
``annotated``  AnnData objects, .h5ad and zarr stores
``mtx``        folders with ``matrix.mtx`` and tables of barcodes and features
=============  =========================================================================
"""
