import threading

from maxkernel_nb.tpu.dumps import collecting


def test_the_folder_is_empty_before_and_after(tmp_path):
    (tmp_path / "left.txt").write_text("from an earlier compile")
    (tmp_path / "folder").mkdir()
    with collecting(tmp_path) as dumps:
        assert list(tmp_path.iterdir()) == []
        (tmp_path / "1-op-00-final_bundles.txt").write_text("x")
    assert list(tmp_path.iterdir()) == []
    assert dumps.note() == ""


def test_a_dump_past_its_limit_loses_its_oldest_files_and_says_so(tmp_path):
    with collecting(tmp_path, limit=2500, period=0.01) as dumps:
        for n in range(5):
            (tmp_path / f"{n}-op.txt").write_bytes(b"x" * 1000)
        seen = threading.Event()
        for _ in range(500):
            if dumps.dropped >= 3:
                break
            seen.wait(0.01)
        assert sorted(p.name for p in tmp_path.iterdir()) == ["3-op.txt", "4-op.txt"]
    assert "3 files were deleted unread" in dumps.note(2500)


def test_a_folder_is_emptied_when_the_compile_fails(tmp_path):
    try:
        with collecting(tmp_path):
            (tmp_path / "1-op.txt").write_text("x")
            raise ValueError("refused")
    except ValueError:
        pass
    assert list(tmp_path.iterdir()) == []


def test_without_dumps_nothing_is_watched(tmp_path):
    with collecting(None) as dumps, collecting(tmp_path / "missing"):
        assert dumps.dropped == 0
