"""Studies: workloads, trials, the containers they ran in, the targets trained from the best."""

from django.contrib.postgres.fields import ArrayField
from django.db import models

from cluster.models import Device
from jobs.models import Artifact, Job
from journal.core.ids import new_id
from tuning.core.states import TrialState


class Workload(models.Model):
    """A registered workload, as its description was last read in a process of its own."""

    name = models.CharField(max_length=100, primary_key=True)
    description = models.JSONField(
        help_text="space, metric, mode, epochs and more; see workers.trainer.describe"
    )
    error = models.CharField(max_length=1000, blank=True, help_text="why it cannot be used")
    is_available = models.BooleanField(default=True)
    synced_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Study(models.Model):
    """What a study's driver needs to go on where another stopped, and what lists show of it."""

    job = models.OneToOneField(Job, on_delete=models.CASCADE, primary_key=True, related_name="study")
    workload = models.CharField(max_length=100)
    metric = models.CharField(max_length=100)
    mode = models.CharField(max_length=3)
    trials_total = models.PositiveIntegerField()
    trials_ended = models.PositiveIntegerField(default=0)
    best_metric = models.FloatField(null=True, blank=True)
    best_trial = models.PositiveIntegerField(null=True, blank=True)
    # JSON as text: a replay needs the order of keys, which the type jsonb does not keep.
    facts = models.TextField(blank=True, help_text="the workload as it was when the study began")
    snapshot = models.TextField(blank=True, help_text="the study brain's state after `snapshot_step` steps")
    snapshot_step = models.PositiveIntegerField(default=0)
    transfer = models.JSONField(null=True, blank=True, help_text="the last transfer report")
    transfer_asked_at = models.DateTimeField(null=True, blank=True, help_text="a report was asked for")
    spending = models.JSONField(
        default=dict, blank=True, help_text="where the time went, in seconds, and the profiles and checks"
    )
    # Seconds the study has been worked on; times of trials count from here and stand still between drivers.
    elapsed_s = models.FloatField(default=0.0)

    class Meta:
        verbose_name_plural = "studies"
        constraints = [models.CheckConstraint(name="study_mode", condition=models.Q(mode__in=["min", "max"]))]

    def __str__(self) -> str:
        return f"study of {self.workload}"


class StudyStep(models.Model):
    """What the brain was told since its last snapshot; replaying it gives the same brain again."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="study_steps")
    number = models.PositiveIntegerField()
    body = models.TextField()

    class Meta:
        ordering = ["number"]
        constraints = [models.UniqueConstraint(name="study_step_once", fields=["job", "number"])]

    def __str__(self) -> str:
        return f"step {self.number} of {self.job_id}"


class Container(models.Model):
    """Trials that ran together on one device, fused into one module when there are several."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="containers")
    run = models.CharField(max_length=20, help_text="the brain's name for it: c0, c1, ...")
    trials = ArrayField(models.PositiveIntegerField())
    batch_size = models.PositiveIntegerField(null=True)
    device = models.ForeignKey(Device, on_delete=models.SET_NULL, null=True, related_name="containers")
    device_label = models.CharField(max_length=200)
    from_epoch = models.PositiveIntegerField(default=0)
    start_s = models.FloatField()
    end_s = models.FloatField(null=True)
    outcome = models.CharField(max_length=20, blank=True)
    note = models.CharField(max_length=1000, blank=True)
    epochs = models.PositiveIntegerField(default=0, help_text="the last epoch that it reported")
    spent = models.JSONField(default=dict, blank=True, help_text="device seconds by trial number")

    class Meta:
        ordering = ["start_s", "id"]
        constraints = [models.UniqueConstraint(name="container_once", fields=["job", "run"])]

    def __str__(self) -> str:
        return f"container {self.run} of {self.job_id}"


class Trial(models.Model):
    """One configuration and what became of it."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="trials")
    number = models.PositiveIntegerField()
    config = models.JSONField()
    state = models.CharField(
        max_length=20, choices=[(s.value, s.value) for s in TrialState], default=TrialState.WAITING
    )
    reason = models.CharField(max_length=1000, null=True, blank=True)  # noqa: DJ001 (null is the contract's word)
    metric = models.FloatField(null=True, blank=True)
    epochs = models.PositiveIntegerField(default=0)
    curve = models.JSONField(default=list, help_text="[[epoch, metric or null], ...]")
    device_seconds = models.FloatField(default=0.0)
    started_s = models.FloatField(null=True, blank=True)
    ended_s = models.FloatField(null=True, blank=True)
    log = models.TextField(blank=True)

    class Meta:
        ordering = ["number"]
        constraints = [
            models.UniqueConstraint(name="trial_once", fields=["job", "number"]),
            models.CheckConstraint(
                name="trial_state_is_known", condition=models.Q(state__in=[s.value for s in TrialState])
            ),
        ]
        indexes = [
            models.Index(fields=["job", "metric", "number"], name="trial_by_metric"),
            models.Index(fields=["job", "state", "number"], name="trial_by_state"),
        ]

    def __str__(self) -> str:
        return f"trial {self.number} of {self.job_id}"


class Target(models.Model):
    """The full model trained from a trial's configuration."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="targets")
    trial = models.ForeignKey(Trial, on_delete=models.CASCADE, related_name="targets")
    variant = models.PositiveIntegerField(default=0, help_text="above 0: one of the second search")
    values = models.JSONField(default=dict, blank=True, help_text="what it has in place of the trial's own")
    state = models.CharField(max_length=20, default="running")
    metric = models.FloatField(null=True, blank=True)
    curve = models.JSONField(default=list)
    started_after_finished_fraction = models.FloatField(null=True, blank=True)
    device_label = models.CharField(max_length=200, blank=True)
    beside = ArrayField(
        models.CharField(max_length=200), default=list, blank=True,
        help_text="labels of its further devices, where it trains data-parallel",
    )  # fmt: skip
    note = models.CharField(max_length=1000, blank=True, help_text="why it has so many devices")
    start_s = models.FloatField(null=True, blank=True)
    end_s = models.FloatField(null=True, blank=True)
    reason = models.CharField(max_length=1000, blank=True)
    model = models.ForeignKey(
        Artifact, on_delete=models.SET_NULL, null=True, blank=True, related_name="targets"
    )

    class Meta:
        ordering = ["start_s"]
        constraints = [models.UniqueConstraint(name="target_once", fields=["job", "trial", "variant"])]

    def __str__(self) -> str:
        return f"target of trial {self.trial_id}"


class Lending(models.Model):
    """Whether a training job's bubbles may be used now; a job without a row lends as its spec says."""

    job = models.OneToOneField(Job, on_delete=models.CASCADE, primary_key=True, related_name="lending")
    switched_off = models.BooleanField(default=False, help_text="by a person; only a person ends it")
    actor = models.CharField(max_length=200, blank=True, help_text="who used the switch last")
    reason = models.CharField(max_length=1000, blank=True, help_text="why it is as it is")
    stops = models.PositiveIntegerField(default=0, help_text="how often it was stopped for the slowdown")
    rests_until = models.DateTimeField(null=True, blank=True, help_text="after such a stop")
    changed_at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return f"lending of {self.job_id}: {'off' if self.switched_off else 'on'}"


class BubbleUse(models.Model):
    """What a study has had of the bubbles of one lent device. All times in seconds."""

    study = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="bubble_uses")
    lender = models.ForeignKey(
        Job, on_delete=models.CASCADE, null=True, related_name="lent_bubbles",
        help_text="the training job; null where somebody's own pipeline lends",
    )  # fmt: skip
    board = models.CharField(max_length=200)
    device = models.ForeignKey(Device, on_delete=models.SET_NULL, null=True, related_name="+")
    device_label = models.CharField(max_length=200)
    rank = models.PositiveIntegerField(null=True, help_text="of the training job")
    waited_s = models.FloatField(default=0.0, help_text="all waits of the rank while the study looked on")
    lent_s = models.FloatField(default=0.0, help_text="waits that were announced")
    used_s = models.FloatField(default=0.0, help_text="processor time of trials inside them")
    leaked_s = models.FloatField(default=0.0, help_text="processor time of trials outside them")
    steps = models.BigIntegerField(default=0, help_text="training steps of containers")
    exclusive_s = models.FloatField(default=0.0, help_text="estimated: those steps on a device of their own")
    watched_s = models.FloatField(default=0.0, help_text="time on the wall that the sums cover")
    slots = models.JSONField(default=dict, help_text="sums by slot: lent, used, seen, skipped by rule")
    sample = models.JSONField(default=dict, help_text="the latest figures; see workers.squeezer.samples")
    began_at = models.DateTimeField(auto_now_add=True)
    sampled_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["board", "began_at"]
        constraints = [models.UniqueConstraint(name="bubble_use_once", fields=["study", "board"])]

    def __str__(self) -> str:
        return f"bubbles of {self.board} for {self.study_id}"
