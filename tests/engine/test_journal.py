import multiprocessing
import os
import signal

import pytest

from maxkernel_nb.engine.state import fold
from maxkernel_nb.errors import JournalError
from maxkernel_nb.events import Noted, Spend, Spent
from maxkernel_nb.journal import Journal, read_events


def test_events_come_back_in_order_and_fold_the_same(tmp_path):
    journal = Journal(tmp_path)
    written = [Noted(text=f"note {n}") for n in range(5)] + [Spent(amount=Spend(judged=1))]
    for event in written:
        journal.append(event, at=0.0)
    assert read_events(tmp_path) == written
    assert fold(read_events(tmp_path)) == fold(written)


def test_a_second_writer_is_refused_and_told_who_writes(tmp_path):
    journal = Journal(tmp_path)
    with pytest.raises(JournalError, match=f"driven by process {os.getpid()}"):
        Journal(tmp_path)
    journal.close()
    Journal(tmp_path).close()


def _write_forever(folder):
    journal, n = Journal(folder), 0
    while True:
        journal.append(Noted(text=f"{n}"), at=0.0)
        n += 1


def test_a_writer_killed_in_the_middle_leaves_a_readable_prefix_and_no_lock(tmp_path):
    writer = multiprocessing.get_context("spawn").Process(target=_write_forever, args=(tmp_path,))
    writer.start()
    while not (tmp_path / "journal.sqlite3").exists() or len(_read_or_nothing(tmp_path)) < 20:
        assert writer.is_alive()
    os.kill(writer.pid, signal.SIGKILL)
    writer.join()
    events = read_events(tmp_path)
    assert [e.text for e in events] == [str(n) for n in range(len(events))]
    Journal(tmp_path).close()


def _read_or_nothing(folder):
    try:
        return read_events(folder)
    except JournalError:
        return []


def test_a_missing_journal_is_one_sentence(tmp_path):
    with pytest.raises(JournalError, match="no journal in"):
        read_events(tmp_path)


def test_a_broken_file_is_one_sentence_that_names_the_folder(tmp_path):
    (tmp_path / "journal.sqlite3").write_bytes(b"not a database, for sure" * 100)
    with pytest.raises(JournalError, match=tmp_path.name):
        Journal(tmp_path)
