"""Outgoing webhooks: where they may go, how they are signed, what they say, when they are tried again."""
