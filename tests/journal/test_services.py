import threading
from datetime import timedelta

import pytest
from django.db import DatabaseError, connection, transaction

from journal.models import AuditEntry, Event, OutboxMessage
from journal.queries import broken_audit_entry, events_after, window_of
from journal.services import Fact, audit, record, ring, sweep_outbox


@pytest.mark.django_db
def test_events_of_a_stream_are_numbered_without_a_gap():
    record("job:a", [Fact("x", {"n": 1}), Fact("x", {"n": 2})])
    record("job:b", [Fact("x", {})])
    record("job:a", [Fact("x", {"n": 3})])
    assert [(e.seq, e.data["n"]) for e in events_after("job:a", 0)] == [(1, 1), (2, 2), (3, 3)]


@pytest.mark.django_db
def test_a_rolled_back_change_leaves_no_hole():
    record("job:a", [Fact("kept", {})])
    with pytest.raises(RuntimeError), transaction.atomic():
        record("job:a", [Fact("lost", {})])
        raise RuntimeError
    record("job:a", [Fact("kept", {})])
    assert [e.seq for e in events_after("job:a", 0)] == [1, 2]


@pytest.mark.django_db(transaction=True)
def test_parallel_writers_leave_no_gap_and_no_double():
    def write():
        for _ in range(20):
            record("job:busy", [Fact("x", {})])
        connection.close()

    writers = [threading.Thread(target=write) for _ in range(5)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert list(Event.objects.filter(stream_id="job:busy").values_list("seq", flat=True)) == list(
        range(1, 101)
    )


@pytest.mark.django_db
def test_old_events_are_forgotten_and_the_window_says_so(settings):
    settings.EVENTS_KEPT = 10
    for n in range(30):
        record("job:a", [Fact("x", {"n": n})])
    window = window_of("job:a")
    assert window.last_seq == 30
    assert Event.objects.filter(stream_id="job:a").count() == window.last_seq - window.first_seq + 1 <= 11
    assert not window.can_resume(5)
    assert window.can_resume(30)
    assert not window.can_resume(31)


@pytest.mark.django_db
def test_the_audit_chain_holds_and_names_a_forged_entry():
    for n in range(3):
        audit(actor="ada", action="job.submit", target=f"job:{n}", detail={"n": n})
    assert broken_audit_entry() is None
    forged = AuditEntry.objects.get(number=2)
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE journal_auditentry DISABLE TRIGGER audit_entry_is_final")
        cursor.execute("UPDATE journal_auditentry SET actor = 'eve' WHERE number = %s", [forged.pk])
    assert broken_audit_entry() == 2


@pytest.mark.django_db
@pytest.mark.parametrize(
    "statement", ["UPDATE journal_auditentry SET actor = 'eve'", "DELETE FROM journal_auditentry"]
)
def test_the_database_refuses_to_change_the_audit_log(statement):
    audit(actor="ada", action="x", target="y")
    with pytest.raises(DatabaseError, match="append-only"), connection.cursor() as cursor:
        cursor.execute(statement)


@pytest.mark.django_db(transaction=True)
def test_a_doorbell_waits_in_the_outbox_while_the_broker_is_away(broker_at):
    broker_at("redis://127.0.0.1:1/0")
    with transaction.atomic():
        ring("cluster.tick", queue="coordinator", args=[])
    assert OutboxMessage.objects.get().attempts == 1


@pytest.mark.django_db(transaction=True)
def test_the_sweeper_sends_what_was_left_behind(valkey_server):
    OutboxMessage.objects.create(task="cluster.tick", queue="test-outbox", args=[])
    assert sweep_outbox(older_than=timedelta(0)) == 1
    assert not OutboxMessage.objects.exists()
