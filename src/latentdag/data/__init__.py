"""What data becomes: moments, from any source, and the files they are kept in."""
