"""One look: the colours of the pages, a caption under the axes, PNG and SVG, nothing left behind."""

from __future__ import annotations

import re
from importlib import util
from pathlib import Path

import matplotlib
import pytest

from headwise.doctor.page_style import CSS
from headwise.errors import ConfigError, MissingExtra, StorageError
from headwise.see import drawing
from headwise.see.drawing import Drawing, name_ticks, sheet
from headwise.see.fonts import LabelFonts


def small(caption: str = "Look here.") -> Drawing:
    with sheet(4, 2, caption, "drawing a test") as (figure, [[axes]]):
        axes.plot([0, 1], [0, 1])
        axes.set_xlabel("step")
    return Drawing(figure, caption)


def test_the_colours_are_those_of_the_pages() -> None:
    light = CSS[: CSS.index("prefers-color-scheme: dark")]
    named = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{3,6})", light))
    assert tuple(named[f"c{n}"] for n in range(8)) == drawing.LINES
    assert [named[n] for n in ("ink", "soft", "rule", "masked", "hatch")] == [
        drawing.INK, drawing.SOFT, drawing.RULE, drawing.MASKED, drawing.HATCH,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "starts"), [("a.png", b"\x89PNG"), ("b.SVG", b"<?xml"), ("deep/er/c.svg", b"<?xml")]
)
def test_it_is_saved_as_its_name_ends(name: str, starts: bytes, tmp_path: Path) -> None:
    path = small().save(tmp_path / name)
    assert path == tmp_path / name and path.read_bytes().startswith(starts)
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_the_same_picture_is_the_same_file(tmp_path: Path) -> None:
    assert small().save(tmp_path / "a.svg").read_bytes() == small().save(tmp_path / "b.svg").read_bytes()


def test_another_ending_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"must end in \.png or \.svg: got .*loss\.pdf; write loss\.png"):
        small().save(tmp_path / "loss.pdf")
    with pytest.raises(StorageError, match="cannot write"):
        (tmp_path / "file").touch()
        small().save(tmp_path / "file" / "a.png")


def test_a_notebook_shows_it() -> None:
    assert small()._repr_png_().startswith(b"\x89PNG")


@pytest.mark.parametrize("words", [3, 120])
def test_the_caption_has_room_beneath_the_axes(words: int) -> None:
    with drawing.look():
        figure = small(" ".join(["caption"] * words)).figure
        figure.draw_without_rendering()
    [text] = figure.texts
    frame = figure.bbox
    box = text.get_window_extent()
    label = figure.axes[0].xaxis.label.get_window_extent()
    assert frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0 and box.y1 < label.y0
    assert text.get_text().replace("\n", " ") == " ".join(["caption"] * words)


def test_the_users_own_settings_of_matplotlib_stay() -> None:
    before = dict(matplotlib.rcParams)
    small()
    assert dict(matplotlib.rcParams) == before


def test_names_that_are_long_or_many_still_fit() -> None:
    with sheet(4, 2, "c", "drawing a test") as (_, [[axes]]):
        name_ticks(axes, "x", ["a" * 60, "b"], LabelFonts(["ab"]))
        name_ticks(axes, "y", [str(n) for n in range(200)], LabelFonts(["0123456789"]))
    assert [label.get_text() for label in axes.get_xticklabels()] == ["a" * 23 + "\u2026", "b"]
    assert [label.get_text() for label in axes.get_yticklabels()][:3] == ["0", "4", "8"]


def test_without_matplotlib_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = util.find_spec
    monkeypatch.setattr(util, "find_spec", lambda name: None if name == "matplotlib" else find_spec(name))
    with pytest.raises(MissingExtra, match="drawing a test needs matplotlib"):
        small()
