"""The tuner: a Celery task that drives a study on Ray actors, under a lease."""
