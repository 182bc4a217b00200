"""What people write to have communication scheduled under computation: `forebay.Program`."""

from jobs.core.overlap.program import Program

__all__ = ["Program"]
