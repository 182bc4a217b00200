"""The Django admin offers the same decision on plans through the same service."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest

from jobs.core.errors import JobError
from jobs.models import Reconfiguration
from jobs.services import reconfigurations

if TYPE_CHECKING:  # generic for the type checker only
    PlanAdmin = admin.ModelAdmin[Reconfiguration]
else:
    PlanAdmin = admin.ModelAdmin


@admin.register(Reconfiguration)
class ReconfigurationAdmin(PlanAdmin):
    """Plans to read, and two actions; a row is changed by no form."""

    list_display = (
        "created_at", "job", "kind", "state", "baseline_iteration_s", "predicted_iteration_s",
        "predicted_pause_s", "requester", "approver", "expires_at",
    )  # fmt: skip
    list_filter = ("state", "kind")
    list_select_related = ("job", "requester", "approver")
    search_fields = ("job__name",)
    ordering = ("-created_at",)
    actions = ("approve", "reject")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    @admin.action(description="Approve the selected plans")
    def approve(self, request: HttpRequest, rows: QuerySet[Reconfiguration]) -> None:
        """Approve each plan as the person who is signed in; what one asked for oneself is refused."""
        self._decide(request, rows, reconfigurations.approve, "approved")

    @admin.action(description="Reject the selected plans")
    def reject(self, request: HttpRequest, rows: QuerySet[Reconfiguration]) -> None:
        """Reject each plan as the person who is signed in."""
        self._decide(request, rows, reconfigurations.reject, "rejected")

    def _decide(
        self, request: HttpRequest, rows: QuerySet[Reconfiguration], decide: Callable[..., Any], word: str
    ) -> None:
        person: Any = request.user
        for row in rows:
            try:
                decide(
                    reconfiguration_id=row.pk,
                    approver=person,
                    actor=person.get_username(),
                    seen_version=row.version,
                    comment="decided in the Django admin",
                )
            except JobError as error:
                self.message_user(request, f"{row.kind} of {row.job.name}: {error}", messages.ERROR)
            else:
                self.message_user(request, f"{row.kind} of {row.job.name}: {word}", messages.SUCCESS)
