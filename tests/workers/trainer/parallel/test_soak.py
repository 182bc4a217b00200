"""Changes of layout in a row leave nothing behind; a hundred of them are `forebay bench reconfigure`."""

from workers.trainer.parallel.soak import PHASES, soak


def test_changes_in_a_row_leave_no_process_socket_or_thread_and_use_each_sample_once():
    found = soak(3, width=16)
    assert [set(change.phases_s) for change in found.changes] == [set(PHASES)] * 3
    assert all(change.pause_s > 0 and change.sent_bytes > 0 for change in found.changes)
    for rank, before in found.before.items():
        after = found.after[rank]
        assert (after.sockets, after.files, after.threads) == (before.sockets, before.files, before.threads)
    assert found.processes_left == 0
    assert found.samples_exact
