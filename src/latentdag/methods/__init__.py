"""The methods behind :func:`latentdag.fit`, one per file."""
