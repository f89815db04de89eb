"""Say how sure one fit is: standard errors, tests of edges, predictions, scores on held-out data."""
