"""Where rows come from: one file for each kind of source, each of which only yields blocks of rows.

``opening`` chooses the reader; ``reader`` says what every reader can do.
"""
