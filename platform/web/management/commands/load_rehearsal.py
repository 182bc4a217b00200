"""Put up a rehearsal cluster from a file, or take it away."""

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from cluster.core.bodies import read_rehearsal
from cluster.core.errors import ClusterError
from cluster.services.rehearsal_cluster import load_rehearsal, remove_rehearsal
from jobs.core.document import parse_json, parse_yaml
from jobs.core.errors import InvalidSpec


class Command(BaseCommand):
    help = (
        "Load simulated nodes, kinds, teams, quotas and a clock for rehearsal jobs from a YAML or JSON file."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", nargs="?", type=Path, help="YAML, or JSON where the name ends in .json")
        parser.add_argument("--remove", action="store_true", help="take the rehearsal cluster away")

    def handle(self, *args: Any, **options: Any) -> None:
        path: Path | None = options["file"]
        if (path is None) != options["remove"]:
            raise CommandError("give a file, or --remove")
        try:
            if path is None:
                remove_rehearsal(actor="command line")
                self.stdout.write("removed")
                return
            text = path.read_text()
            body = read_rehearsal(parse_json(text) if path.suffix == ".json" else parse_yaml(text))
            for warning in load_rehearsal(body=body, actor="command line"):
                self.stderr.write(f"warning: {warning}")
        except (OSError, UnicodeDecodeError, ClusterError, InvalidSpec) as error:
            raise CommandError(str(error)) from error
        devices = sum(node.devices for node in body.nodes)
        self.stdout.write(f"{len(body.nodes)} simulated nodes with {devices} devices")
