"""What can go wrong with the journal."""


class JournalError(Exception):
    """Something asked of the journal cannot be done."""


class ChainBroken(JournalError):
    """An audit entry does not follow from the one before it."""

    def __init__(self, number: int) -> None:
        super().__init__(f"audit entry {number} does not match its hash: the log was altered")
        self.number = number
