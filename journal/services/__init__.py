"""Every write of the journal."""

from journal.services.audit import audit
from journal.services.events import Fact, record
from journal.services.outbox import ring, sweep_outbox

__all__ = ["Fact", "audit", "record", "ring", "sweep_outbox"]
