"""Answers about exact moments: what is identified, and what no amount of data can tell."""
