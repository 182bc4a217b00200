"""What `forebay doctor` looks at: the machine, the installation, and what runs already."""

from forebay.supervisor.directory import DataDirectory
from forebay.supervisor.doctor import installation, machine, platform_state
from forebay.supervisor.doctor.finding import Finding


def examine(data: DataDirectory, port: int | None) -> list[Finding]:
    """All findings about this machine and this data directory, in the order a person would ask."""
    return [*machine.findings(data), *installation.findings(data), *platform_state.findings(data, port)]


__all__ = ["Finding", "examine"]
