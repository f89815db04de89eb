"""What one fit says, and how sure it is: standard errors, tests of edges, predictions, scores on held-out data."""
