"""How sure: tests, standard errors, intervals, bootstrap and held-out scores, one per file."""
