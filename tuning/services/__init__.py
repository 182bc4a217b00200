"""Every write of studies."""
