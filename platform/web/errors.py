"""What can go wrong with signing in, tokens and requests."""


class WebError(Exception):
    """Something asked of the site itself cannot be done."""


class InvalidToken(WebError):
    """A request for a token breaks rules; each fault is a JSON Pointer and a sentence."""

    def __init__(self, faults: list[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{pointer}: {sentence}" for pointer, sentence in faults))
        self.faults = faults


class InvalidPerson(InvalidToken):
    """What was said of a person breaks rules; each fault is a JSON Pointer and a sentence."""


class NotGranted(WebError):
    """The caller may not hand out what they asked for."""
