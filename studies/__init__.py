"""Studies of ours. They belong to the repository, not to the installed package; see studies/README.md."""
