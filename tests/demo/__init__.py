"""Jobs as their drivers would have left them."""

from tests.demo.studies import EPOCHS, HOSTILE, SPACE, cores, person, study, team_with, workload
from tests.demo.trainings import incident, plan, training

__all__ = [
    "EPOCHS",
    "HOSTILE",
    "SPACE",
    "cores",
    "incident",
    "person",
    "plan",
    "study",
    "team_with",
    "training",
    "workload",
]
