"""What can go wrong with the cluster."""


class ClusterError(Exception):
    """Something asked of the cluster cannot be done."""


class IllegalDeviceMove(ClusterError):
    """A device cannot go to that state from where it is."""

    def __init__(self, old: str, new: str) -> None:
        super().__init__(f"a {old} device cannot become {new}")


class LeaseLost(ClusterError):
    """Somebody else holds the lease now; whatever was about to be written is out of date."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the lease {name} is held by somebody else now")


class TraceError(ClusterError):
    """A trace breaks a rule; the message names the row and the field."""

    def __init__(self, field: str, rule: str, row: int | None = None) -> None:
        where = f"{field}: " if row is None else f"row {row}, {field}: "
        super().__init__(f"{where}{rule}")
        self.field = field
        self.row = row


class RequestError(ClusterError):
    """A job asks for devices in a way that makes no sense, or for what can never be given."""

    def __init__(self, field: str, rule: str) -> None:
        super().__init__(f"{field}: {rule}")
        self.field = field


class InvalidBody(ClusterError):
    """What an operator sent breaks rules; `faults` lists (JSON pointer, rule) pairs, one for each fault."""

    def __init__(self, faults: list[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{pointer or '/'}: {rule}" for pointer, rule in faults))
        self.faults = faults


class StaleRow(ClusterError):
    """The caller decided on an older version of something than the present one."""

    def __init__(self, thing: str, seen: int, current: int) -> None:
        super().__init__(f"the {thing} has moved on: version {seen} was seen, it is now at {current}")


class RehearsalBusy(ClusterError):
    """The rehearsal cluster cannot be changed while jobs use it."""


class PreviewTooLarge(ClusterError):
    """Playing the queue forward takes longer than anybody wants to wait for a page."""


class QuotaError(ClusterError):
    """A tree of teams or a quota contradicts itself."""


class CapacityError(ClusterError):
    """Devices would be given twice, or given back twice."""


class UnknownPolicy(ClusterError):
    """No policy has that name."""

    def __init__(self, name: str, known: list[str]) -> None:
        super().__init__(f"policy: {name!r} is none of {', '.join(known)}")
