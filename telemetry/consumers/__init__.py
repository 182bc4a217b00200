"""Live streams: one listener per web process, every browser a bounded queue."""
