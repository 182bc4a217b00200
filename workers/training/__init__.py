"""The driver of training jobs and what it needs: iterations, detection, recovery, burn-in."""
