"""Every write of jobs."""
