"""Pictures of every source come as numbers from 0 to 1, and the parts never mix."""

from __future__ import annotations

import struct
import sys
import zlib
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from headwise.config import ImagesConfig, PatchConfig
from headwise.data.images import load_pictures, read_picture
from headwise.errors import DataError, MissingExtra

GREY = PatchConfig(height=4, width=6, size=2, channels=1)
COLOUR = PatchConfig(height=4, width=6, size=2, channels=3)
DIGIT = PatchConfig(height=8, width=8, size=2, channels=1)


def numbers(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(1).integers(0, 256, shape, dtype=np.uint8)


def arrays(folder: Path, images: object, labels: object, **more: object) -> ImagesConfig:
    np.savez(folder / "a.npz", images=np.asarray(images), labels=np.asarray(labels))
    return ImagesConfig(source=str(folder / "a.npz"), **more)  # type: ignore[arg-type]


def whole(config: ImagesConfig, patches: PatchConfig) -> np.ndarray[Any, Any]:
    found = load_pictures(config, patches)
    return np.concatenate([part.images for part in (found.train, found.validation, found.test)])


LABELS = np.arange(30) % 3


@pytest.mark.parametrize("kind", ["uint8", "float32", "float64", "bool"])
@pytest.mark.parametrize("patches", [GREY, COLOUR], ids=["grey", "colour"])
def test_arrays_keep_every_pixel(kind: str, patches: PatchConfig, tmp_path: Path) -> None:
    given = numbers(30, 4, 6) if patches is GREY else numbers(30, 4, 6, 3)
    expected = given.astype(np.float64) / 255
    if kind == "bool":
        given, expected = given > 99, (given > 99).astype(np.float64)
    elif kind != "uint8":
        given = expected.astype(kind)
    found = whole(arrays(tmp_path, given, LABELS), patches)
    assert found.shape == (30, patches.channels, 4, 6) and found.dtype == np.float32
    rows = expected[:, None] if patches is GREY else np.moveaxis(expected, 3, 1)
    assert {row.tobytes() for row in found.round(4)} == {
        row.tobytes() for row in rows.astype(np.float32).round(4)
    }


def test_every_picture_is_in_one_part_with_its_class(tmp_path: Path) -> None:
    images = np.zeros((30, 4, 6), dtype=np.float32)
    images[:, 0, 0] = np.arange(30) / 30
    found = load_pictures(arrays(tmp_path, images, np.array(["cat", "dog", "ant"])[LABELS]), GREY)
    assert found.classes == ("ant", "cat", "dog")
    seen: list[int] = []
    for part in (found.train, found.validation, found.test):
        rows = np.rint(part.images[:, 0, 0, 0] * 30).astype(int)
        assert [found.classes[label] for label in part.labels] == [
            ["cat", "dog", "ant"][row % 3] for row in rows
        ]
        seen += rows.tolist()
    assert sorted(seen) == list(range(30))
    assert [len(part) for part in (found.train, found.validation, found.test)] == [21, 3, 6]


def test_labels_in_bytes_are_names(tmp_path: Path) -> None:
    labels = np.array([b"cat", "\u72d7".encode(), b"ant"])[LABELS]
    assert load_pictures(arrays(tmp_path, numbers(30, 4, 6), labels), GREY).classes == (
        "ant",
        "cat",
        "\u72d7",
    )


def test_digits_are_drawn_by_class_and_only_split_seed_decides() -> None:
    config = ImagesConfig(test_share=0.2, validation_share=0.1)
    found = load_pictures(config, DIGIT)
    assert found.classes == tuple("0123456789")
    assert len(found.train) + len(found.validation) + len(found.test) == 1797
    assert found.train.images.min() == 0 and found.train.images.max() == 1
    total = sum(
        (Counter(part.labels.tolist()) for part in (found.train, found.validation, found.test)), Counter()
    )
    assert Counter(found.test.labels.tolist()) == {
        label: round(0.2 * count) for label, count in total.items()
    }
    assert load_pictures(config, DIGIT).fingerprint() == found.fingerprint()
    other = load_pictures(replace(config, split_seed=2), DIGIT)
    assert other.fingerprint() != found.fingerprint()
    assert not np.array_equal(other.test.images, found.test.images)


@pytest.mark.parametrize(
    ("images", "labels", "said"),
    [
        (numbers(30, 4), LABELS, r"must hold images \[N, height, width\].*: got \[30, 4\] and \[30\]"),
        (numbers(30, 4, 6), LABELS[:9], r"got \[30, 4, 6\] and \[9\]"),
        (numbers(0, 4, 6), LABELS[:0], r"got \[0, 4, 6\] and \[0\]"),
        (numbers(30, 0, 6), LABELS, r"got \[30, 0, 6\]"),
        (
            numbers(30, 4, 6).astype(int),
            LABELS,
            "must be bytes, or numbers from 0 to 1: got 0 to 255; divide",
        ),
        (numbers(30, 4, 6) / 100, LABELS, "numbers from 0 to 1: got 0 to 2.55"),
        (np.full((30, 4, 6), np.nan), LABELS, "numbers from 0 to 1: got nan"),
        (-np.ones((30, 4, 6)), LABELS, "numbers from 0 to 1: got -1"),
        (np.full((30, 4, 6), "x"), LABELS, "images must be numbers: got <U1"),
        (numbers(30, 4, 6) * 1j, LABELS, "images must be numbers: got complex128"),
        (numbers(30, 6, 4), LABELS, "1 channels of 4 x 6 pixels: got 1 of 6 x 4 in .*; set model.patches"),
        (numbers(30, 4, 6, 3), LABELS, "got 3 of 4 x 6"),
        (numbers(30, 4, 6), LABELS * 0, "there must be two classes or more: got 1"),
        (numbers(30, 4, 6), np.where(LABELS, LABELS, np.nan), "must have a label: got NaN or an empty one"),
        (numbers(30, 4, 6), np.array(["a", " ", "c"])[LABELS], "must have a label: got NaN or an empty one"),
        (numbers(30, 4, 6), np.array([b"a", b"\xff", b"c"])[LABELS], "labels must be UTF-8: got other bytes"),
        (numbers(30, 4, 6), [0] * 28 + [1] * 2, "each class needs three pictures.*: '1' has 2; add pictures"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(
    images: object, labels: object, said: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=said):
        load_pictures(arrays(tmp_path, images, labels), GREY)


def test_nothing_is_ever_unpickled(tmp_path: Path) -> None:
    objects = np.empty(30, dtype=object)
    np.savez(tmp_path / "a.npz", images=objects, labels=LABELS)
    with pytest.raises(DataError, match=r"a\.npz must be an \.npz file .*allow_pickle=False"):
        load_pictures(ImagesConfig(source=str(tmp_path / "a.npz")), GREY)


@pytest.mark.parametrize("content", ["empty", "text", "npy", "other names", "cut", "flipped"])
def test_what_is_no_archive_is_named(content: str, tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez_compressed(path, images=numbers(30, 4, 6), labels=LABELS)
    whole = path.read_bytes()
    if content == "npy":
        with path.open("wb") as file:
            np.save(file, numbers(30, 4, 6))
    elif content == "other names":
        np.savez(path, x=numbers(3))
    else:
        middle = len(whole) // 3
        flipped = whole[:middle] + bytes([whole[middle] ^ 255]) + whole[middle + 1 :]
        path.write_bytes({"empty": b"", "text": b"a b c", "cut": whole[:200], "flipped": flipped}[content])
    with pytest.raises(
        DataError, match=r"a\.npz must be an \.npz file with arrays images and labels"
    ) as caught:
        load_pictures(ImagesConfig(source=str(path)), GREY)
    assert "pickle" not in str(caught.value) and "protocol" not in str(caught.value)


def test_a_missing_source_says_what_it_may_be(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"must be digits, a folder with a subfolder for each class, or an \.npz"
    ):
        load_pictures(ImagesConfig(source=str(tmp_path / "none")), GREY)


def folder_of(folder: Path, suffix: str = ".png") -> Path:
    for place, name in enumerate(("b", "a")):
        (folder / name).mkdir(parents=True)
        for number in range(4):
            shade = 10 * number + 100 * place
            Image.new("RGB", (12, 8), (shade, shade, 255)).save(folder / name / f"{number}{suffix}")
        (folder / name / "notes.txt").write_text("no picture")
        (folder / name / f"._0{suffix}").write_text("what macOS puts into archives")
    (folder / ".hidden").mkdir()
    return folder


def test_a_folder_has_a_class_for_each_subfolder(tmp_path: Path) -> None:
    found = load_pictures(ImagesConfig(source=str(folder_of(tmp_path / "p"))), COLOUR)
    assert found.classes == ("a", "b")
    shades = {
        (int(label), round(float(image[0, 0, 0]) * 255))
        for part in (found.train, found.validation, found.test)
        for image, label in zip(part.images, part.labels, strict=True)
    }
    assert shades == {(0, 100 + 10 * n) for n in range(4)} | {(1, 10 * n) for n in range(4)}
    assert (found.train.images[:, 2] == 1).all() and found.train.images.shape[1:] == (3, 4, 6)
    assert load_pictures(ImagesConfig(source=str(tmp_path / "p")), GREY).train.images.shape[1] == 1


def test_a_picture_is_read_at_the_models_size(tmp_path: Path) -> None:
    pixels = numbers(4, 6)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    np.testing.assert_allclose(read_picture(tmp_path / "a.png", GREY)[0], pixels / 255, atol=1e-6)
    Image.fromarray(numbers(40, 60, 4)).save(tmp_path / "b.png")
    assert read_picture(tmp_path / "b.png", COLOUR).shape == (3, 4, 6)


@pytest.mark.parametrize("patches", [GREY, COLOUR], ids=["grey", "colour"])
@pytest.mark.parametrize("kind", ["a.png", "a.tif", "a.pgm", "float.tif"])
def test_shades_finer_than_a_byte_are_kept(kind: str, patches: PatchConfig, tmp_path: Path) -> None:
    shades = np.random.default_rng(1).integers(0, 65_536, (4, 6), dtype=np.uint16)
    given = (shades / 65_535).astype(np.float32) if kind == "float.tif" else shades
    Image.fromarray(given).save(tmp_path / kind)
    found = read_picture(tmp_path / kind, patches)
    assert found.shape == (patches.channels, 4, 6) and found.dtype == np.float32
    np.testing.assert_allclose(found, np.broadcast_to(shades / 65_535, found.shape), atol=1e-6)


@pytest.mark.parametrize(
    ("pixels", "said"),
    [
        (
            np.full((4, 6), 255, np.float32),
            "expected pixels from 0 to 1 in mode F, got 255 to 255; take it out",
        ),
        (np.full((4, 6), np.nan, np.float32), "in mode F, got nan to nan"),
        (np.full((4, 6), 70_000, np.int32), "from 0 to 65535 in mode I, got 70000 to 70000"),
        (np.full((4, 6), -1, np.int32), "in mode I, got -1 to -1"),
    ],
)
def test_shades_without_a_known_white_are_refused(
    pixels: np.ndarray[Any, Any], said: str, tmp_path: Path
) -> None:
    Image.fromarray(pixels).save(tmp_path / "a.tif")
    with pytest.raises(DataError, match=said):
        read_picture(tmp_path / "a.tif", GREY)


def test_folders_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "p")
    config = ImagesConfig(source=str(folder))
    (folder / "empty").mkdir()
    with pytest.raises(DataError, match="'empty' has 0; add pictures or take it out"):
        load_pictures(config, GREY)
    (folder / "empty").rmdir()
    with pytest.raises(DataError, match=r"read with 1 channel .* got model\.patches\.channels=2"):
        load_pictures(config, replace(GREY, channels=2))
    (tmp_path / "none").mkdir()
    with pytest.raises(DataError, match="must have a subfolder of pictures for each class: got no picture"):
        load_pictures(ImagesConfig(source=str(tmp_path / "none")), GREY)


def test_a_picture_damaged_anywhere_is_named_or_read(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    Image.fromarray(numbers(4, 6)).save(path)
    content = path.read_bytes()
    refused = 0
    for place in range(len(content)):
        for damaged in (
            content[:place],
            content[:place] + bytes([content[place] ^ 0x41]) + content[place + 1 :],
        ):
            path.write_bytes(damaged)
            try:
                read_picture(path, GREY)
            except DataError as error:
                refused += 1
                assert str(error).startswith(f"{path} is no picture that can be read: ")
    assert refused > len(content)


def test_a_picture_too_large_to_be_true_is_named(tmp_path: Path) -> None:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 0, 0, 0, 0)
    (tmp_path / "a.png").write_bytes(
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b""))
        + chunk(b"IEND", b"")
    )
    with pytest.raises(DataError, match="is no picture that can be read"):
        read_picture(tmp_path / "a.png", GREY)
    with pytest.raises(DataError, match=r"none\.png is no picture that can be read: No such file"):
        read_picture(tmp_path / "none.png", GREY)


def test_a_missing_package_names_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(MissingExtra, match=r"needs pillow.*headwise\[images\]"):
        read_picture(tmp_path / "a.png", GREY)
    with pytest.raises(MissingExtra, match=r"needs scikit-learn.*headwise\[digits\]"):
        load_pictures(ImagesConfig(), DIGIT)
