"""Backfill: later jobs start early where they delay nobody who holds a reservation.

EASY (Lifka, JSSPP 1995) reserves for the head only; conservative (Mu'alem and Feitelson, TPDS 2001) for
everybody.
"""

from cluster.core.policies.fifo import Fifo
from cluster.core.policies.interface import Blocking


class EasyBackfill(Fifo):
    """By arrival with one reservation, for the head of the line, from the running jobs' limits."""

    name = "backfill"
    title = "EASY backfill: one reservation, for the head of the line"
    blocking = Blocking.EASY


class ConservativeBackfill(Fifo):
    """By arrival with a reservation for every waiting job; nobody is ever delayed by a later one."""

    name = "conservative"
    title = "Conservative backfill: a reservation for every waiting job"
    blocking = Blocking.CONSERVATIVE
