"""Simulations of a cluster's queue, over the same policy objects that run it."""
