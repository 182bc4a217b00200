"""Every write of sign-in, tokens and remembered answers."""
