"""Data-parallel targets: how ranks meet, agree and share the batches of one model."""
