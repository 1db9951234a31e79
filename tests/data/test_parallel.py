from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headwise.data import parallel
from headwise.data.parallel import (
    MAX_CHARACTERS,
    decoded_lines,
    read_aligned,
    read_lines,
    read_parallel,
    stream_lines,
    stream_text,
)
from headwise.errors import DataError


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@given(
    st.lists(st.text().map(lambda text: text.replace("\n", " ").removesuffix("\r")), min_size=1),
    st.booleans(),
)
def test_what_was_written_line_by_line_is_read(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], packed: bool
):
    content = "".join(line + "\n" for line in lines).encode()
    path = write(
        tmp_path_factory.getbasetemp() / "lines", gzip.compress(content, mtime=0) if packed else content
    )
    lines[0] = lines[0].removeprefix("\ufeff")
    assert read_lines(path) == lines


@given(
    st.binary(max_size=40),
    st.sampled_from([b"", b"\x1f\x8b", b"\x1f\x8b\x08\x00", gzip.compress(b"a text", mtime=0)]),
)
def test_any_bytes_give_lines_or_a_data_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, head: bytes
):
    path = write(tmp_path_factory.getbasetemp() / "bytes", head + content)
    try:
        lines = read_lines(path)
    except DataError as error:
        assert str(path) in str(error)
    else:
        assert lines and not any("\n" in line for line in lines)


def test_only_line_feeds_end_lines(tmp_path: Path):
    path = write(tmp_path / "a", "one\u2028still\u0085one\x0c\x1c\r\n\ntwo\rtwo\r\n\rthree\r\r\n")
    assert read_lines(path) == ["one\u2028still\u0085one\x0c\x1c", "", "two\rtwo", "\rthree\r"]


def test_a_byte_order_mark_is_dropped_once(tmp_path: Path):
    assert read_lines(write(tmp_path / "a", "\ufeff\ufeffone\n\ufefftwo\n")) == ["\ufeffone", "\ufefftwo"]


def test_gzip_is_told_by_content_not_by_name(tmp_path: Path):
    assert read_lines(write(tmp_path / "plain.gz", "text\n")) == ["text"]
    assert read_lines(write(tmp_path / "packed.txt", gzip.compress(b"text\n", mtime=0))) == ["text"]
    two_members = gzip.compress(b"one\n", mtime=0) + gzip.compress(b"two\n", mtime=0)
    assert read_lines(write(tmp_path / "joined", two_members)) == ["one", "two"]


def test_pairs_stay_aligned_and_unusable_ones_are_counted(tmp_path: Path):
    long = "x" * MAX_CHARACTERS
    source = write(tmp_path / "s.en", f"a\n\nb\nc\n{long}\n{long}x\nd\n")
    target = write(tmp_path / "s.de", f"A\nB\n \t\nC\nL\nM\n{long}y\n")
    pairs, warnings = read_parallel(source, target)
    assert pairs.source == ["a", "c", long]
    assert pairs.target == ["A", "C", "L"]
    assert warnings == [
        "2 of 7 pairs of s.en and s.de left out: one side is empty",
        "2 of 7 pairs of s.en and s.de left out: over 10,000 characters",
    ]


def test_good_files_warn_of_nothing(tmp_path: Path):
    pairs, warnings = read_parallel(write(tmp_path / "a", "a\nb"), write(tmp_path / "b", "A\nB\n"))
    assert (pairs.source, pairs.target, warnings) == (["a", "b"], ["A", "B"], [])


def test_unequal_line_counts_name_both_files_and_counts(tmp_path: Path):
    source, target = write(tmp_path / "s", "a\nb\n"), write(tmp_path / "t", "A\nB\n\n")
    for read in (read_aligned, read_parallel):
        with pytest.raises(DataError) as caught:
            read(source, target)
        assert str(caught.value) == (
            f"line n of one file must translate line n of the other: got 2 lines in {source} "
            f"and 3 in {target}; align them again"
        )


def test_no_usable_pair_is_an_error(tmp_path: Path):
    with pytest.raises(DataError, match=r"at least one usable pair: got 2 with an empty side and 0 over"):
        read_parallel(write(tmp_path / "s", "a\n\n"), write(tmp_path / "t", "\nB\n"))


def test_invalid_utf_8_names_file_line_and_byte(tmp_path: Path):
    path = write(tmp_path / "latin.de", b"fein\nsch" + b"\xf6n\n")
    with pytest.raises(DataError, match=r"latin\.de must be UTF-8: line 2, byte 4 is 0xf6; convert it"):
        read_lines(path)
    first = write(tmp_path / "utf16", "a\n".encode("utf-16"))
    with pytest.raises(DataError, match=r"utf16 must be UTF-8: line 1, byte 1 is 0xff"):
        read_lines(first)
    cut = write(tmp_path / "cut", gzip.compress("ä\nö".encode()[:-1], mtime=0))
    with pytest.raises(DataError, match=r"cut must be UTF-8: line 2, byte 1 is 0xc3"):
        read_lines(cut)


@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf", gzip.compress(b"", mtime=0)])
def test_an_empty_file_is_an_error(tmp_path: Path, content: bytes):
    with pytest.raises(DataError, match=r"e\.txt must hold text: got an empty file"):
        read_lines(write(tmp_path / "e.txt", content))


@pytest.mark.parametrize("damage", ["cut", "flipped", "trailing", "head"])
def test_a_damaged_gzip_is_named(tmp_path: Path, damage: str):
    good = gzip.compress("".join(f"line {n}\n" for n in range(300)).encode(), mtime=0)
    middle = len(good) // 2
    content = {
        "cut": good[:middle],
        "flipped": good[:middle] + bytes([good[middle] ^ 255]) + good[middle + 1 :],
        "trailing": good + b"junk",
        "head": good[:2],
    }[damage]
    with pytest.raises(DataError, match=r"d\.gz is a damaged gzip file"):
        read_lines(write(tmp_path / "d.gz", content))


def test_what_cannot_be_opened_is_named(tmp_path: Path):
    with pytest.raises(
        DataError, match=r"cannot read .*none\.de: No such file or directory; name a text file"
    ):
        read_lines(tmp_path / "none.de")
    with pytest.raises(DataError, match=r"cannot read .*: Is a directory"):
        read_lines(tmp_path)
    with pytest.raises(DataError, match="cannot read"):
        read_lines(Path("a\0b"))


def test_a_stream_is_read_as_it_is_asked_for(tmp_path: Path):
    damaged = write(tmp_path / "d", b"one\n" * 100_000 + b"\xff\n")
    with stream_lines(damaged) as lines:
        assert [next(lines) for _ in range(3)] == ["one"] * 3
    packed = gzip.compress(b"".join(b"%d\n" % number for number in range(100_000)), mtime=0)
    with stream_lines(write(tmp_path / "cut", packed[:-9])) as lines:
        assert [next(lines) for _ in range(3)] == ["0", "1", "2"]
        with pytest.raises(DataError, match=r"cut is a damaged gzip file after line \d\d+"):
            list(lines)


def test_a_file_is_opened_before_it_is_read_and_closed_after(tmp_path: Path):
    with pytest.raises(DataError, match="cannot read"), stream_lines(tmp_path / "none"):
        raise AssertionError("too late")
    with stream_lines(write(tmp_path / "a", "one\ntwo\n")) as lines:
        assert next(lines) == "one"
    with pytest.raises(ValueError, match="closed"):
        next(lines)


def test_an_overlong_line_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(parallel, "LONGEST_LINE", 10)
    path = write(tmp_path / "a", b"123456789\n" * 2)
    assert read_lines(path) == ["123456789"] * 2
    with pytest.raises(DataError, match="line 3 must be shorter than 10 bytes; give one sentence a line"):
        read_lines(write(path, b"123456789\n" * 2 + b"1234567890\n"))


def test_what_cannot_be_read_on_is_named():
    def broken(size: int) -> bytes:
        raise OSError(5, "Input/output error")

    with pytest.raises(DataError, match="cannot read the tape after line 0: Input/output error; name"):
        next(decoded_lines(broken, "the tape"))


def text_of(folder: Path, content: bytes) -> str:
    path = folder / "text"
    path.write_bytes(content)
    return "".join(stream_text(path))


PARTS = st.lists(st.sampled_from(["a", "\r", "\n", "\r\n", "\u00e4", "\U0001f600", "\ufeff", "\u2028"]))


@given(PARTS, st.integers(1, 5), st.booleans())
def test_text_comes_whole_in_parts_of_any_size(
    tmp_path_factory: pytest.TempPathFactory, parts: list[str], size: int, is_packed: bool
) -> None:
    """A character or a line end that falls apart between two parts is put together again."""
    text = "".join(parts)
    content = gzip.compress(text.encode(), mtime=0) if is_packed else text.encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parallel, "LONGEST_LINE", size)
        found = text_of(tmp_path_factory.getbasetemp(), content)
    assert found == text.removeprefix("\ufeff").replace("\r\n", "\n")


@given(st.lists(st.sampled_from([b"ab", b"\n", "\u00e4".encode(), "\U0001f600".encode()])), st.integers(1, 5))
@example([], 1)
def test_what_is_no_text_is_named_by_line_and_byte_as_for_lines(
    tmp_path_factory: pytest.TempPathFactory, before: list[bytes], size: int
) -> None:
    content = b"".join(before) + b"\xff" + b"\nmore"
    folder = tmp_path_factory.getbasetemp()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parallel, "LONGEST_LINE", size)
        with pytest.raises(DataError) as raised:
            text_of(folder, content)
    with pytest.raises(DataError) as expected, stream_lines(folder / "text") as lines:
        list(lines)
    assert str(raised.value) == str(expected.value)


def test_text_that_ends_inside_a_character_is_no_text(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"must be UTF-8: line 2, byte 2 is 0xc3"):
        text_of(tmp_path, b"a\nb\xc3")


def test_text_may_have_lines_of_any_length(tmp_path: Path) -> None:
    text = "\u00e4" * parallel.LONGEST_LINE
    assert text_of(tmp_path, text.encode()) == text


def test_text_in_a_damaged_gzip_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="text is a damaged gzip file"):
        text_of(tmp_path, gzip.compress(b"some text" * 50, mtime=0)[:-9])
