"""The model in words: what it is, its exact law, random draws of it, and how far two of them are apart."""
