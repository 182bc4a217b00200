"""What a training job is asked to do, and the numbers of its model."""

from jobs.core.training.model import ModelShape
from jobs.core.training.schema import spec_schema
from jobs.core.training.spec import ClusterFacts, check_spec

__all__ = ["ClusterFacts", "ModelShape", "check_spec", "spec_schema"]
