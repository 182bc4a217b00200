"""Studies in one process tree, without a server."""
