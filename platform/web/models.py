"""Ways to prove who one is: API tokens, one-time links, WebSocket tickets; and remembered answers."""

from django.contrib.postgres.fields import ArrayField
from django.db import models

from cluster.models import Team, User
from journal.core.ids import new_id


class ApiToken(models.Model):
    """A token for programs. Only the SHA-256 of its 256-bit secret is stored."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="tokens")
    team = models.ForeignKey(
        Team, on_delete=models.CASCADE, null=True, blank=True, help_text="bound to one team"
    )
    name = models.CharField(max_length=100)
    prefix = models.CharField(max_length=24, unique=True)
    digest = models.CharField(max_length=64, unique=True)
    scopes = ArrayField(models.CharField(max_length=20))
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    last_used_ip = models.GenericIPAddressField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at", "-id"]

    def __str__(self) -> str:
        return f"{self.prefix}… of {self.user_id}"


class OneTimeSecret(models.Model):
    """A login link or a WebSocket ticket: good once, for a short time."""

    digest = models.CharField(max_length=64, primary_key=True)
    purpose = models.CharField(max_length=20)
    user = models.ForeignKey(User, on_delete=models.CASCADE)
    token = models.ForeignKey(ApiToken, on_delete=models.CASCADE, null=True, blank=True)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                name="one_time_secret_purpose", condition=models.Q(purpose__in=["login", "ticket"])
            )
        ]

    def __str__(self) -> str:
        return f"{self.purpose} for {self.user_id}"


class RememberedAnswer(models.Model):
    """The answer to a request with an Idempotency-Key, given again when the request comes again."""

    user = models.ForeignKey(User, on_delete=models.CASCADE)
    key = models.CharField(max_length=255)
    route = models.CharField(max_length=300)
    body_sha256 = models.CharField(max_length=64)
    status = models.PositiveIntegerField(null=True)
    headers = models.JSONField(default=dict)
    body = models.JSONField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(name="answer_once", fields=["user", "key", "route"])]

    def __str__(self) -> str:
        return f"{self.key} of {self.user_id}"
