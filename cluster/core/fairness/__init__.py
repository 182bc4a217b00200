"""Who may have how much: fair tree, decayed usage, quotas, fair division, victims."""
