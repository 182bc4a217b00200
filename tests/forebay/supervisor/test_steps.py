"""Which steps of a start are due."""

import os
from pathlib import Path

from forebay.supervisor.steps import fingerprint, is_current, migration_files


def test_a_changed_a_new_and_a_missing_file_change_the_fingerprint(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("1")
    before = fingerprint("fact", files=[one])
    assert fingerprint("fact", files=[one]) == before
    assert fingerprint("another", files=[one]) != before
    os.utime(one, ns=(0, 0))
    touched = fingerprint("fact", files=[one])
    two.write_text("2")
    assert len({before, touched, fingerprint("fact", files=[one, two]), fingerprint("fact")}) == 4


def test_the_order_of_files_does_not_matter(tmp_path: Path) -> None:
    files = [tmp_path / name for name in "abc"]
    for path in files:
        path.touch()
    assert fingerprint(files=files) == fingerprint(files=files[::-1])


def test_a_step_is_due_until_recorded_for_this_very_state(tmp_path: Path) -> None:
    record = tmp_path / "migrations"
    assert not is_current(record, "a")
    record.write_text("a")
    assert is_current(record, "a")
    assert not is_current(record, "b")


def test_migrations_of_every_folder_count(tmp_path: Path) -> None:
    for folder in ("jobs", "platform/web"):
        (tmp_path / folder / "migrations").mkdir(parents=True)
        (tmp_path / folder / "migrations" / "0001_initial.py").touch()
    found = {str(path.relative_to(tmp_path)) for path in migration_files(tmp_path)}
    assert found == {"jobs/migrations/0001_initial.py", "platform/web/migrations/0001_initial.py"}
