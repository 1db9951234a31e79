"""Pictures and their classes: scikit-learn's digits, folders, arrays."""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from headwise.config import ImagesConfig, PatchConfig, expanded
from headwise.data.labelled import split_by_class
from headwise.errors import DataError, MissingExtra

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"}


@dataclass(frozen=True)
class Pictures:
    """images: [N, channels, height, width], each pixel 0 to 1. labels: places in the classes, [N]."""

    images: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: list[int]) -> Pictures:
        """These rows."""
        return Pictures(self.images[rows], self.labels[rows])


@dataclass(frozen=True)
class PictureParts:
    """A data set, drawn apart by class: the test part is there to be measured once, at the end."""

    train: Pictures
    validation: Pictures
    test: Pictures
    classes: tuple[str, ...]

    def fingerprint(self) -> str:
        """Changes with the pictures, their classes and the draw."""
        digest = hashlib.sha256(repr(self.classes).encode())
        for part in (self.train, self.validation, self.test):
            digest.update(part.images.tobytes())
            digest.update(part.labels.tobytes())
        return digest.hexdigest()[:16]


def load_pictures(config: ImagesConfig, patches: PatchConfig) -> PictureParts:
    """Read the pictures, bring them to the model's size, draw the parts.

    Errors: DataError for what cannot be read, sizes or channels that do not fit, and classes of fewer
    than three pictures; MissingExtra for scikit-learn (digits) or pillow (folders).
    """
    if config.source == "digits":
        images, labels, classes = _digits()
    else:
        path = expanded(config.source)
        images, labels, classes = _folder(path, patches) if path.is_dir() else _arrays(path)
    shape = (patches.channels, patches.height, patches.width)
    if images.shape[1:] != shape:
        raise DataError(
            f"pictures must be as model.patches says, {patches.channels} channels of {patches.height} x "
            f"{patches.width} pixels: got {images.shape[1]} of {images.shape[2]} x {images.shape[3]} in "
            f"{config.source}; set model.patches.channels, height and width"
        )
    if len(classes) < 2:
        raise DataError(
            f"there must be two classes or more: got {len(classes)} in {config.source}; "
            "add pictures of another"
        )
    whole = Pictures(images, labels)
    counts = np.bincount(labels, minlength=len(classes))
    if counts.min() < 3:
        rare = int(counts.argmin())
        raise DataError(
            "each class needs three pictures, one to learn from, one to validate on and one to test on: "
            f"{classes[rare]!r} has {counts[rare]}; add pictures or take it out"
        )
    places: list[int] = labels.tolist()
    names = [classes[place] for place in places]
    rest, test = split_by_class(names, config.test_share, config.split_seed, "to test on")
    learnt, kept = split_by_class(
        [names[row] for row in rest], config.validation_share, config.split_seed, "to validate on"
    )
    return PictureParts(
        whole.take([rest[row] for row in learnt]),
        whole.take([rest[row] for row in kept]),
        whole.take(test),
        classes,
    )


def read_picture(path: Path, patches: PatchConfig) -> npt.NDArray[np.float32]:
    """A picture at the model's size, [channels, height, width], each pixel 0 to 1.

    Errors: DataError for what is no picture of one or three channels; MissingExtra without pillow.
    """
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtra("pillow", "reading pictures", "images") from None
    if patches.channels not in (1, 3):
        raise DataError(
            f"pictures are read with 1 channel (grey) or 3 (colour): got model.patches.channels="
            f"{patches.channels}; set one of these, or give an .npz file"
        )
    try:
        with Image.open(path) as picture:
            wide, most = _wide(picture)
            shades = wide or picture.convert("L" if patches.channels == 1 else "RGB")
            sized = shades.resize((patches.width, patches.height), Image.Resampling.BILINEAR)
    except Exception as error:  # pillow raises a dozen types for damaged files
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path} is no picture that can be read: {reason}; take it out") from None
    pixels = np.asarray(sized, dtype=np.float32) / np.float32(most)
    if pixels.ndim == 2:
        return np.repeat(pixels[None], patches.channels, axis=0)
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))


def _wide(picture: Picture) -> tuple[Picture | None, int]:
    """A grey picture of more than a byte a pixel, in float, and the value of white; None for all others.

    Pillow's own way to a byte would cut every shade above 255 to white.
    Errors: ValueError for pixels outside of that.
    """
    if picture.mode != "F" and not picture.mode.startswith("I"):
        return None, 255
    most = 1 if picture.mode == "F" else 65_535
    pixels = np.asarray(picture, dtype=np.float32)
    low, high = float(pixels.min()), float(pixels.max())
    if not (low >= 0 and high <= most):  # NaN too
        raise ValueError(f"expected pixels from 0 to {most} in mode {picture.mode}, got {low:g} to {high:g}")
    from PIL import Image

    return Image.fromarray(pixels), most


def _digits() -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64], tuple[str, ...]]:
    try:
        from sklearn.datasets import load_digits  # pyright: ignore
    except ImportError:
        raise MissingExtra("scikit-learn", "data.images.source digits", "digits") from None
    found = cast("Any", load_digits())
    shades: npt.NDArray[np.float32] = np.asarray(found.images, dtype=np.float32)
    images = shades[:, None] / np.float32(16)  # sixteen shades of grey
    return images, np.asarray(found.target, dtype=np.int64), tuple(map(str, range(10)))


def _arrays(path: Path) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64], tuple[str, ...]]:
    try:
        with path.open("rb") as opened:
            if not zipfile.is_zipfile(opened):
                raise ValueError("it is none, or damaged")
            opened.seek(0)
            with np.load(opened, allow_pickle=False) as file:
                images, labels = np.asarray(file["images"]), np.asarray(file["labels"])
    except FileNotFoundError:
        raise DataError(
            f"no pictures {path}: data.images.source must be digits, a folder with a subfolder for each "
            "class, or an .npz file"
        ) from None
    except Exception as error:  # numpy and zipfile raise a dozen types for damaged files
        reason = getattr(error, "strerror", None) or error
        raise DataError(
            f"{path} must be an .npz file with arrays images and labels: {reason}; write it with np.savez"
        ) from None
    if images.ndim not in (3, 4) or labels.shape != images.shape[:1] or not images.size:
        raise DataError(
            f"{path} must hold images [N, height, width] or [N, height, width, channels] and labels [N]: got "
            f"{list(images.shape)} and {list(labels.shape)}"
        )
    if images.dtype == np.uint8:
        images = images.astype(np.float32) / np.float32(255)
    elif images.dtype.kind in "fiub":
        images = images.astype(np.float32)
        if not np.isfinite(images).all() or images.min() < 0 or images.max() > 1:
            raise DataError(
                f"{path}: images must be bytes, or numbers from 0 to 1: got {images.min():g} to "
                f"{images.max():g}; divide by the largest value"
            )
    else:
        raise DataError(f"{path}: images must be numbers: got {images.dtype}")
    names, places = np.unique(_label_names(labels, path), return_inverse=True)
    images = images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)
    return (
        np.ascontiguousarray(images, dtype=np.float32),
        places.astype(np.int64),
        tuple(str(name) for name in names),
    )


def _label_names(labels: npt.NDArray[Any], path: Path) -> npt.NDArray[Any]:
    """The labels, as they sort; a class must be seen when it is printed."""
    if labels.dtype.kind == "S":
        try:
            labels = np.char.decode(labels, "utf-8")
        except UnicodeDecodeError:
            raise DataError(f"{path}: labels must be UTF-8: got other bytes; write them as str") from None
    is_number = labels.dtype.kind in "fc"
    if (is_number and not np.isfinite(labels).all()) or not all(str(name).strip() for name in labels):
        raise DataError(f"{path}: each picture must have a label: got NaN or an empty one; fill it in")
    return labels


def _folder(
    path: Path, patches: PatchConfig
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64], tuple[str, ...]]:
    """One subfolder a class; each picture scaled to the model's size."""
    folders = sorted(p for p in path.iterdir() if p.is_dir() and not p.name.startswith("."))
    images: list[npt.NDArray[np.float32]] = []
    labels: list[int] = []
    for place, folder in enumerate(folders):
        for file in sorted(p for p in folder.iterdir() if _is_picture(p)):
            images.append(read_picture(file, patches))
            labels.append(place)
    if not images:
        raise DataError(f"{path} must have a subfolder of pictures for each class: got no picture in it")
    return np.stack(images), np.asarray(labels, dtype=np.int64), tuple(folder.name for folder in folders)


def _is_picture(path: Path) -> bool:
    """By its name; what begins with a dot is a note of the system (._0.png), not of the data."""
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".")
