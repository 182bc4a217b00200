"""Who and what there is: teams, nodes and their devices, leases; the queue and who holds what; accounts."""

from django.contrib.auth.models import AbstractUser
from django.db import models

from cluster.core.roles import Role
from cluster.core.states import AllotmentState, ClusterName, DeviceState, EntryState
from journal.core.ids import new_id


class User(AbstractUser):
    """A person; what they may do comes from their memberships (a superuser is admin everywhere)."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    preferences = models.JSONField(default=dict, blank=True)


class Team(models.Model):
    """A tenant: jobs, tokens and quotas belong to a team and are invisible to others."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    slug = models.SlugField(max_length=50, unique=True)
    name = models.CharField(max_length=100)
    version = models.PositiveIntegerField(default=1)
    created_at = models.DateTimeField(auto_now_add=True)
    members = models.ManyToManyField(User, through="Membership", related_name="teams")

    class Meta:
        ordering = ["slug"]

    def __str__(self) -> str:
        return self.slug


class Membership(models.Model):
    """A person's role in a team."""

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=20, choices=[(r.value, r.value) for r in Role])

    class Meta:
        constraints = [
            models.UniqueConstraint(name="membership_once", fields=["team", "user"]),
            models.CheckConstraint(
                name="membership_role_is_known", condition=models.Q(role__in=[r.value for r in Role])
            ),
        ]

    def __str__(self) -> str:
        return f"{self.user_id} is {self.role} of {self.team_id}"


class Node(models.Model):
    """A machine of the cluster, real or simulated."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    name = models.CharField(max_length=200, unique=True)
    address = models.CharField(max_length=200, blank=True)
    cpus = models.PositiveIntegerField(default=0)
    memory_bytes = models.BigIntegerField(default=0)
    is_simulated = models.BooleanField(default=False)
    facts = models.JSONField(default=dict)
    seen_at = models.DateTimeField()

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Device(models.Model):
    """Something trials and stages run on: a GPU, or a core where there is no GPU."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="devices")
    index = models.PositiveIntegerField()
    kind = models.CharField(max_length=100, help_text="cpu, or the model name the driver reports")
    memory_bytes = models.BigIntegerField(default=0)
    state = models.CharField(
        max_length=20, choices=[(s.value, s.value) for s in DeviceState], default=DeviceState.HEALTHY
    )
    state_reason = models.CharField(max_length=300, blank=True)
    version = models.PositiveIntegerField(default=1)
    facts = models.JSONField(default=dict)
    seen_at = models.DateTimeField()

    class Meta:
        ordering = ["node__name", "index"]
        constraints = [
            models.UniqueConstraint(name="device_index_once", fields=["node", "index"]),
            models.CheckConstraint(
                name="device_state_is_known", condition=models.Q(state__in=[s.value for s in DeviceState])
            ),
        ]

    def __str__(self) -> str:
        return f"{self.node.name}/{self.kind}:{self.index}"


class Lease(models.Model):
    """Who may act on something now. The epoch fences off whoever held it before."""

    name = models.CharField(max_length=120, primary_key=True)
    owner = models.CharField(max_length=200, blank=True)
    epoch = models.BigIntegerField(default=0)
    expires_at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["expires_at"], name="lease_expiry")]

    def __str__(self) -> str:
        return f"{self.name} #{self.epoch} by {self.owner or 'nobody'}"


class Quota(models.Model):
    """A team's place in the tree and what it may hold of each device kind."""

    team = models.OneToOneField(Team, on_delete=models.CASCADE, primary_key=True, related_name="quota")
    parent = models.ForeignKey(Team, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    shares = models.PositiveIntegerField(default=1, help_text="weight among its siblings; 0 goes last")
    # kind -> {"guaranteed": thousandths, "borrowable": thousandths or null, "lendable": thousandths or null}
    kinds = models.JSONField(default=dict)
    version = models.PositiveIntegerField(default=1)

    def __str__(self) -> str:
        return f"quota of {self.team_id}"


class Coordinator(models.Model):
    """The rules of one queue and what its last tick found: one for real devices, one for simulated ones."""

    name = models.CharField(max_length=20, primary_key=True)
    policy = models.CharField(max_length=40)
    rules = models.JSONField(default=dict, help_text="what differs from the default rules")
    held_reason = models.CharField(max_length=300, blank=True, help_text="nothing starts while this is set")
    version = models.PositiveIntegerField(default=1)
    epoch = models.BigIntegerField(default=0, help_text="grows with every tick that holds the lock")
    digest = models.CharField(max_length=64, blank=True, help_text="of the state that was last decided on")
    decided_at = models.DateTimeField(null=True)
    charged_at = models.DateTimeField(null=True)
    devices = models.JSONField(default=dict, help_text="kind to total, used, free, drained thousandths")
    clock_speed = models.FloatField(default=1.0, help_text="simulated seconds per second")
    clock_from = models.DateTimeField(null=True, help_text="from when on the clock runs at this speed")

    class Meta:
        constraints = [
            models.CheckConstraint(
                name="coordinator_is_known", condition=models.Q(name__in=[n.value for n in ClusterName])
            ),
            models.CheckConstraint(name="clock_speed_is_positive", condition=models.Q(clock_speed__gt=0)),
        ]

    def __str__(self) -> str:
        return f"queue of {self.name} devices"


class QueueEntry(models.Model):
    """A job in the queue. Jobs lie above the cluster, so only their id is known here."""

    job_id = models.UUIDField(primary_key=True)
    job_kind = models.CharField(max_length=20)
    label = models.CharField(max_length=200)
    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="queue_entries")
    owner = models.ForeignKey(User, on_delete=models.CASCADE, related_name="queue_entries")
    is_simulated = models.BooleanField(default=False)
    state = models.CharField(
        max_length=20, choices=[(s.value, s.value) for s in EntryState], default=EntryState.WAITING
    )
    demand = models.JSONField(help_text="what it asks for; see cluster.core.queue.demand")
    declared = models.JSONField(default=dict, help_text="scheduling fields as they were submitted")
    is_held = models.BooleanField(default=False)
    held_reason = models.CharField(max_length=300, blank=True)
    submitted_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True, help_text="of the present run")
    executed_s = models.FloatField(default=0.0, help_text="of earlier runs, by the queue's clock")
    attained_device_s = models.FloatField(default=0.0)
    done_s = models.FloatField(default=0.0, help_text="of its work, by the queue's clock, until done_at")
    done_at = models.DateTimeField(null=True, help_text="until when done_s counts; null before a run")
    received = models.JSONField(default=dict, help_text="kind to seconds it has run there, until done_at")
    evictions = models.PositiveIntegerField(default=0)
    rank = models.BigIntegerField(default=0, help_text="place in the order as last decided")
    position = models.PositiveIntegerField(null=True, help_text="from 1; null where it is set aside")
    reason = models.CharField(max_length=40, blank=True)
    message = models.CharField(max_length=500, blank=True)
    wait = models.JSONField(default=dict, help_text="next_step, numbers, ahead, behind")
    predicted_start_at = models.DateTimeField(null=True)
    earliest_start_at = models.DateTimeField(null=True)
    latest_start_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name_plural = "queue entries"
        ordering = ["is_simulated", "rank", "job_id"]
        constraints = [
            models.CheckConstraint(
                name="queue_entry_state_is_known",
                condition=models.Q(state__in=[s.value for s in EntryState]),
            ),
        ]
        indexes = [models.Index(fields=["is_simulated", "state", "rank"], name="queue_by_rank")]

    def __str__(self) -> str:
        return f"{self.label} ({self.state})"


class Allotment(models.Model):
    """Thousandths of a device that a job of the queue holds, is leaving, or has kept for it."""

    entry = models.ForeignKey(QueueEntry, on_delete=models.CASCADE, related_name="allotments")
    device = models.ForeignKey(Device, on_delete=models.CASCADE, related_name="allotments")
    milli = models.PositiveIntegerField()
    task = models.PositiveIntegerField(default=0)
    state = models.CharField(max_length=20, choices=[(s.value, s.value) for s in AllotmentState])
    since = models.DateTimeField()
    charged_at = models.DateTimeField(help_text="until when its use is in the accounts")

    class Meta:
        ordering = ["since", "id"]
        constraints = [
            models.CheckConstraint(
                name="allotment_milli", condition=models.Q(milli__gte=1) & models.Q(milli__lte=1000)
            ),
            models.CheckConstraint(
                name="allotment_state_is_known",
                condition=models.Q(state__in=[s.value for s in AllotmentState]),
            ),
            # The last word against giving a whole device twice; shares of one are counted by the decision.
            models.UniqueConstraint(
                name="whole_device_once",
                fields=["device"],
                condition=models.Q(milli=1000) & ~models.Q(state=AllotmentState.KEPT),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.milli} of {self.device_id} {self.state} by {self.entry_id}"


class BookedDevices(models.Model):
    """A reservation: devices of a kind kept over a time for a team's jobs that name it."""

    name = models.CharField(max_length=100)
    is_simulated = models.BooleanField(default=False)
    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="+")
    kind = models.CharField(max_length=100)
    milli = models.PositiveBigIntegerField()
    start_at = models.DateTimeField()
    end_at = models.DateTimeField()
    is_lendable = models.BooleanField(
        default=True, help_text="others may use them meanwhile and give way at once"
    )

    class Meta:
        ordering = ["start_at", "name"]
        constraints = [
            models.UniqueConstraint(name="booking_name_once", fields=["name", "is_simulated"]),
            models.CheckConstraint(
                name="booking_ends_after_it_begins", condition=models.Q(end_at__gt=models.F("start_at"))
            ),
            models.CheckConstraint(name="booking_keeps_something", condition=models.Q(milli__gte=1)),
        ]

    def __str__(self) -> str:
        return f"{self.name}: {self.milli / 1000:g} x {self.kind}"


class DecisionRecord(models.Model):
    """What a tick decided and from what, so that it can be decided again."""

    cluster = models.CharField(max_length=20)
    epoch = models.BigIntegerField()
    at = models.DateTimeField()
    now_s = models.FloatField(help_text="the time the decision was told")
    policy = models.CharField(max_length=40)
    state = models.BinaryField(help_text="the state as compressed JSON")
    outcome = models.BinaryField(help_text="the decision as compressed JSON")
    starts = models.PositiveIntegerField()
    preemptions = models.PositiveIntegerField()
    waiting = models.PositiveIntegerField()

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"decision {self.epoch} of {self.cluster}"


class FairUsage(models.Model):
    """Device-seconds of a person in a team that fade with a half-life: the base of fair share."""

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="+")
    owner = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    is_simulated = models.BooleanField(default=False)
    device_s = models.FloatField(default=0.0)
    as_of = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(name="fair_usage_once", fields=["team", "owner", "is_simulated"])
        ]

    def __str__(self) -> str:
        return f"{self.device_s:.0f} device-seconds of {self.owner_id} in {self.team_id}"


class DayUsage(models.Model):
    """What a person's jobs held of a kind on one day (UTC), for accounting."""

    day = models.DateField()
    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="+")
    owner = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    kind = models.CharField(max_length=100)
    is_simulated = models.BooleanField(default=False)
    device_s = models.FloatField(default=0.0)
    borrowed_device_s = models.FloatField(default=0.0, help_text="the part above the team's guarantee")
    recovered_device_s = models.FloatField(
        default=0.0, help_text="computed in bubbles of other jobs' devices; not part of device_s"
    )

    class Meta:
        ordering = ["-day", "team__slug", "owner__username", "kind"]
        constraints = [
            models.UniqueConstraint(
                name="day_usage_once", fields=["day", "team", "owner", "kind", "is_simulated"]
            )
        ]

    def __str__(self) -> str:
        return f"{self.device_s:.0f} device-seconds of {self.kind} on {self.day}"
