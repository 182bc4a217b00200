"""Figures for Prometheus: requests of this process, and what the database holds."""

from collections.abc import Iterable, Iterator

from django.db import connection
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

REGISTRY = CollectorRegistry(auto_describe=True)
ProcessCollector(registry=REGISTRY)
REQUESTS = Counter(
    "forebay_http_requests_total", "Requests answered.", ["method", "route", "status"], registry=REGISTRY
)
REQUEST_SECONDS = Histogram(
    "forebay_http_request_seconds",
    "Time to answer.",
    ["route"],
    buckets=(0.01, 0.05, 0.1, 0.2, 0.5, 1, 5),
    registry=REGISTRY,
)
SOCKETS = Gauge("forebay_websocket_clients", "Open event streams.", registry=REGISTRY)

# name -> (help, labels, query whose rows are label values and the figure)
QUERIES: dict[str, tuple[str, list[str], str]] = {
    "forebay_jobs": (
        "Jobs by kind and state.",
        ["kind", "state"],
        "SELECT kind, state, count(*) FROM jobs_job GROUP BY 1, 2",
    ),
    "forebay_trials_running": (
        "Trials that run now.",
        [],
        "SELECT count(*) FROM tuning_trial WHERE state = 'running'",
    ),
    "forebay_devices": (
        "Devices by state; simulated ones apart.",
        ["state", "simulated"],
        "SELECT d.state, n.is_simulated::text, count(*) FROM cluster_device d"
        " JOIN cluster_node n ON n.id = d.node_id GROUP BY 1, 2",
    ),
    "forebay_outbox_messages": (
        "Messages the broker has not taken yet.", [], "SELECT count(*) FROM journal_outboxmessage",
    ),
    "forebay_outbox_oldest_seconds": (
        "Age of the oldest of them.",
        [],
        "SELECT coalesce(extract(epoch FROM now() - min(created_at)), 0)::float8 FROM journal_outboxmessage",
    ),
    "forebay_leases_held": (
        "Leases that somebody holds.",
        [],
        "SELECT count(*) FROM cluster_lease WHERE owner <> '' AND expires_at > clock_timestamp()",
    ),
    "forebay_failure_events": (
        "Failure events by kind.", ["kind"], "SELECT kind, count(*) FROM telemetry_failureevent GROUP BY 1",
    ),
    "forebay_audit_entries": ("Entries of the audit log.", [], "SELECT count(*) FROM journal_auditentry"),
    "forebay_database_connections": (
        "Connections to this database.",
        [],
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()",
    ),
}  # fmt: skip


class DatabaseFigures(Collector):
    """Gauges read from the database when somebody asks."""

    def describe(self) -> Iterable[Metric]:
        return [GaugeMetricFamily(name, help, labels=labels) for name, (help, labels, _) in QUERIES.items()]

    def collect(self) -> Iterator[Metric]:
        for name, (help, labels, query) in QUERIES.items():
            family = GaugeMetricFamily(name, help, labels=labels)
            with connection.cursor() as cursor:
                cursor.execute(query)
                for *values, figure in cursor.fetchall():
                    family.add_metric([str(value) for value in values], float(figure))
            yield family


REGISTRY.register(DatabaseFigures())


def exposition() -> bytes:
    """Return every figure in Prometheus' text format."""
    return generate_latest(REGISTRY)
