"""The layout planner of hybrid-parallel training jobs."""

from jobs.core.layout.actions import Action, action_of
from jobs.core.layout.baselines import Baseline, baselines
from jobs.core.layout.costs import iteration_time
from jobs.core.layout.instance import Device, Instance, Layer, Layout, Replica, Stage
from jobs.core.layout.planner import Plan, make_plan
from jobs.core.layout.reading import read_instance, read_layout
from jobs.core.layout.transfer import Box, Move, TransferPlan, transfer_plan

__all__ = [
    "Action",
    "Baseline",
    "Box",
    "Device",
    "Instance",
    "Layer",
    "Layout",
    "Move",
    "Plan",
    "Replica",
    "Stage",
    "TransferPlan",
    "action_of",
    "baselines",
    "iteration_time",
    "make_plan",
    "read_instance",
    "read_layout",
    "transfer_plan",
]
