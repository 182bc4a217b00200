"""Every write of the cluster."""
