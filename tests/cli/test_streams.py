"""Lines in and lines out: in order, lazily, with the file and the line named when something is wrong."""

from __future__ import annotations

import gzip
import io
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from headwise.cli.streams import check_output, is_terminal, lines_of, write_lines
from headwise.data import parallel
from headwise.errors import DataError, StorageError


class Endless(io.RawIOBase):
    """A standard input that never ends; it counts how much was taken."""

    taken = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        content = (b"ein Satz\n" * (len(buffer) // 9 + 1))[: len(buffer)]
        buffer[:] = content
        self.taken += len(content)
        return len(content)


def read(name: str) -> list[str]:
    with lines_of(name) as lines:
        return list(lines)


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a\n\nb", ["a", "", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"\xef\xbb\xbfa\n", ["a"]),
        ("a\u2028b\x0c\x85\n\u5e74".encode(), ["a\u2028b\x0c\x85", "\u5e74"]),
    ],
)
def test_lines_end_at_line_feed_alone(content: bytes, lines: list[str], tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_bytes(content)
    assert read(str(path)) == lines
    path.write_bytes(gzip.compress(content, mtime=0))
    assert read(str(path)) == lines


def test_input_is_read_as_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    endless = Endless()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(endless)))
    with lines_of("-") as lines:
        assert list(islice(lines, 3)) == ["ein Satz"] * 3
    assert endless.taken <= 2 * io.DEFAULT_BUFFER_SIZE


def test_a_line_without_end_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "LONGEST_LINE", 100)
    path = tmp_path / "in.txt"
    path.write_bytes(b"a" * 98 + b"\n" + b"b" * 99 + b"\n")
    assert [len(line) for line in read(str(path))] == [98, 99]
    path.write_bytes(b"a\n" + b"b" * 100)
    with pytest.raises(DataError, match=r"line 2 must be shorter than 100 bytes"):
        read(str(path))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"ok\nab\xffc\n", r"in.txt must be UTF-8: line 2, byte 3 is 0xff"),
        (
            gzip.compress(b"a\n" * 10_000, mtime=0)[:-20],
            r"in.txt is a damaged gzip file after line \d+: .*; copy or download it again",
        ),
        (b"\x1f\x8bnot gzip", r"in.txt is a damaged gzip file after line 0"),
    ],
)
def test_damaged_input_is_named(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_bytes(content)
    with pytest.raises(DataError, match=said):
        read(str(path))


@pytest.mark.parametrize("name", ["missing.txt", ".", "a\0b"])
def test_input_that_cannot_be_opened_is_named(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot read .*; name a text file, plain or .gz"):
        read(str(tmp_path / name))


def test_a_standard_input_that_fails_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"ok\n\xff\n")))
    with pytest.raises(DataError, match="standard input must be UTF-8: line 2, byte 1 is 0xff"):
        read("-")

    class Broken(Endless):
        def readinto(self, buffer: memoryview) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
            raise IsADirectoryError(21, "Is a directory")

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(Broken())))
    with pytest.raises(DataError, match="cannot read standard input after line 0: Is a directory; name"):
        read("-")
    monkeypatch.setattr(sys, "stdin", None)  # as after <&-
    assert not is_terminal("-")
    with pytest.raises(DataError, match="standard input is closed: expected text; name a file"):
        read("-")


def test_output_appears_when_all_is_written(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_text("old\n")

    def lines() -> Iterator[str]:
        yield "\u5e74"
        assert path.read_text() == "old\n"
        yield ""

    write_lines(str(path), lines())
    assert path.read_bytes() == "\u5e74\n\n".encode()
    assert list(tmp_path.iterdir()) == [path]


def test_output_that_fails_half_way_leaves_the_old(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_text("old\n")

    def lines() -> Iterator[str]:
        yield "half"
        raise DataError("line 2")

    with pytest.raises(DataError, match="line 2"):
        write_lines(str(path), lines())
    assert path.read_text() == "old\n" and list(tmp_path.iterdir()) == [path]


def test_output_into_a_directory_is_refused_before_a_line_is_asked_for(tmp_path: Path) -> None:
    def lines() -> Iterator[str]:
        raise AssertionError("asked for")
        yield ""

    with pytest.raises(StorageError, match="it is a directory; name a file"):
        write_lines(str(tmp_path), lines())
    with pytest.raises(StorageError, match="it is a directory; name a file"):
        check_output(str(tmp_path))
    check_output(str(tmp_path / "new"))
    check_output(str(tmp_path / "made" / "when" / "written"))
    check_output("new")
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="file is no directory; name another place"):
        check_output(str(tmp_path / "file" / "in" / "new"))


def test_each_line_is_flushed(
    capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bytes] = []

    def lines() -> Iterator[str]:
        yield "a"
        seen.append(capfdbinary.readouterr().out)
        yield "b"
        seen.append(capfdbinary.readouterr().out)

    with open(1, "wb", closefd=False) as raw:
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, write_through=True))
        write_lines("-", lines())
        monkeypatch.undo()
    assert seen == [b"a\n", b"b\n"]
