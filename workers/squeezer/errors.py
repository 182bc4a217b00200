"""What can go wrong between a job that lends its bubbles and the guests in them."""


class SqueezerError(Exception):
    """A board or a gate cannot be used, or a guest was ordered in a way that makes no sense."""
