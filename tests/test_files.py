"""The old content or the new, whatever happens in between."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors import serialize_file

from headwise import files
from headwise.errors import StorageError
from headwise.files import write_atomically, write_text_atomically


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text("old")
    return path


def is_untouched(path: Path) -> bool:
    return path.read_text() == "old" and os.listdir(path.parent) == [path.name]


def half_then(error: BaseException) -> Callable[[Path], None]:
    def write(beside: Path) -> None:
        beside.write_text("ne")
        raise error

    return write


def test_new_content_replaces_the_old_and_nothing_is_left_beside(path: Path) -> None:
    write_text_atomically(path, "new, größer, 日本\n")
    assert path.read_bytes() == "new, größer, 日本\n".encode()
    assert os.listdir(path.parent) == [path.name]


def test_missing_directories_are_made(tmp_path: Path) -> None:
    write_text_atomically(tmp_path / "a" / "b" / "c.txt", "new")
    assert (tmp_path / "a" / "b" / "c.txt").read_text() == "new"


def test_the_file_is_on_disk_before_the_name_and_the_name_before_the_return(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    replace = os.replace
    monkeypatch.setattr(files, "_sync", lambda which: steps.append(f"sync {which.name}"))
    monkeypatch.setattr(os, "replace", lambda a, b: (steps.append("rename"), replace(a, b))[1])
    write_text_atomically(path, "new")
    assert steps == ["sync .config.yaml.writing", "rename", f"sync {path.parent.name}"]


def test_readers_meet_the_old_content_until_the_end(path: Path) -> None:
    def write(beside: Path) -> None:
        beside.write_text("new")
        assert path.read_text() == "old"
        assert beside.parent == path.parent  # a rename across file systems would not be atomic

    write_atomically(path, write)
    assert path.read_text() == "new"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "No space left on device"),
        (PermissionError(errno.EACCES, os.strerror(errno.EACCES)), "Permission denied"),
        (OSError("without a number"), "without a number"),
    ],
)
def test_a_failing_write_keeps_the_old_and_names_path_and_reason(
    error: OSError, reason: str, path: Path
) -> None:
    with pytest.raises(StorageError) as raised:
        write_atomically(path, half_then(error))
    assert str(raised.value) == f"cannot write {path}: {reason}; free space or choose another directory"
    assert raised.value.__cause__ is error
    assert is_untouched(path)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("a bug"), SystemExit(3)], ids=repr)
def test_other_failures_pass_through_and_keep_the_old(error: BaseException, path: Path) -> None:
    with pytest.raises(type(error)) as raised:
        write_atomically(path, half_then(error))
    assert raised.value is error
    assert is_untouched(path)


def test_what_safetensors_calls_a_full_disk_is_a_storage_error_too(path: Path) -> None:
    def write(beside: Path) -> None:
        serialize_file({}, beside.parent / "missing" / beside.name, None)

    with pytest.raises(StorageError, match=r"cannot write .*config\.yaml: .*No such file"):
        write_atomically(path, write)
    assert is_untouched(path)


def test_a_directory_that_cannot_be_is_refused(path: Path) -> None:
    with pytest.raises(
        StorageError, match=r"cannot write .*config\.yaml/run/state: .*; free space or choose"
    ):
        write_text_atomically(path / "run" / "state", "new")
    assert is_untouched(path)


def test_a_directory_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    with pytest.raises(StorageError, match=r"cannot write .*state: Is a directory"):
        write_text_atomically(tmp_path / "state", "new")
    assert os.listdir(tmp_path) == ["state"]


def test_a_link_stays_and_the_file_that_it_names_is_replaced(path: Path, tmp_path: Path) -> None:
    links = tmp_path / "links"
    links.mkdir()
    (links / "near").symlink_to("../config.yaml")
    (links / "far").symlink_to("near")
    for number, name in enumerate(("near", "far")):
        write_text_atomically(links / name, f"new {number}")
        assert path.read_text() == f"new {number}"
        assert (links / name).is_symlink() and not path.is_symlink()
    with pytest.raises(StorageError):
        write_atomically(links / "far", half_then(OSError("full")))
    assert path.read_text() == "new 1"
    assert sorted(os.listdir(links)) == ["far", "near"]
    assert sorted(os.listdir(tmp_path)) == ["config.yaml", "links"]


def test_a_link_to_what_is_not_there_yet_makes_it(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("below/new")
    write_text_atomically(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "below" / "new").read_text() == "new"


def test_links_in_a_circle_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(StorageError, match=r"cannot write .*a: Too many levels of symbolic links"):
        write_text_atomically(tmp_path / "a", "new")
    assert (tmp_path / "a").is_symlink() and (tmp_path / "b").is_symlink()


def test_a_pipe_is_written_into_and_stays(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "link").symlink_to("pipe")
    for name in ("pipe", "link"):
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        try:
            write_text_atomically(tmp_path / name, "new, größer\n")
            assert os.read(reader, 100) == "new, größer\n".encode()
        finally:
            os.close(reader)
    assert pipe.is_fifo()
    assert sorted(os.listdir(tmp_path)) == ["link", "pipe"]


def test_a_pipe_whose_reader_goes_is_a_storage_error(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)

    def write(beside: Path) -> None:
        with beside.open("w") as file:
            os.close(reader)
            file.write("new")

    with pytest.raises(StorageError, match=r"cannot write .*pipe: Broken pipe"):
        write_atomically(pipe, write)
    assert pipe.is_fifo()


def device(name: str, minor: int, folder: Path) -> Path:
    """The system's own, or for root, who could spoil it, one of the same kind in a folder."""
    path = Path("/dev", name)
    if os.geteuid() == 0:
        path = folder / name
        try:
            os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, minor))
            path.open("rb").close()
        except OSError:
            pytest.skip("no device may be made here")
    if not path.is_char_device():
        pytest.skip(f"no {path} here")
    return path


def test_the_null_device_takes_everything_and_stays(tmp_path: Path) -> None:
    null = device("null", 3, tmp_path)
    write_text_atomically(null, "new")
    assert null.is_char_device()


def test_a_device_that_is_full_is_a_storage_error_and_stays(tmp_path: Path) -> None:
    full = device("full", 7, tmp_path)
    with pytest.raises(StorageError, match=r"cannot write .*full: No space left on device"):
        write_text_atomically(full, "new")
    assert full.is_char_device()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_without_permission_is_refused(path: Path) -> None:
    path.parent.chmod(0o500)
    try:
        with pytest.raises(StorageError, match="Permission denied"):
            write_text_atomically(path, "new")
    finally:
        path.parent.chmod(0o700)
    assert is_untouched(path)


def run(program: str, path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, str(path)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(files.__file__).parent.parent)},
    )


def test_a_file_that_outgrows_the_disk_leaves_the_old(path: Path) -> None:
    """The system itself refuses: the most a file may grow to is 1,000 bytes."""
    program = """
import resource, sys
from pathlib import Path
from headwise.errors import StorageError
from headwise.files import write_text_atomically
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    write_text_atomically(Path(sys.argv[1]), "x" * 100_000)
except StorageError as error:
    print(error)
"""
    result = run(program, path)
    assert result.stdout == f"cannot write {path}: File too large; free space or choose another directory\n"
    assert result.returncode == 0, result.stderr
    assert is_untouched(path)


def test_killed_half_way_the_old_content_stands_and_the_next_write_clears_up(path: Path) -> None:
    program = """
import os, signal, sys
from pathlib import Path
from headwise.files import write_atomically
def write(beside):
    beside.write_text("ne")
    os.kill(os.getpid(), signal.SIGKILL)
write_atomically(Path(sys.argv[1]), write)
"""
    assert run(program, path).returncode == -signal.SIGKILL
    assert path.read_text() == "old"
    write_text_atomically(path, "new")
    assert path.read_text() == "new"
    assert os.listdir(path.parent) == [path.name]
