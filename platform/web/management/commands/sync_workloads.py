"""Describe the registered workloads in a process of their own and store what it says."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from tuning.core.errors import WorkloadError
from tuning.models import Workload
from tuning.services.workloads import describe_workloads, store_workloads


class Command(BaseCommand):
    help = "Read the descriptions of all registered workloads again."

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            count = store_workloads(describe_workloads())
        except WorkloadError as error:
            raise CommandError(str(error)) from error
        for broken in Workload.objects.filter(is_available=False):
            self.stderr.write(f"{broken.name} cannot be used: {broken.error}")
        self.stdout.write(f"{count} workloads")
