"""Fonts are asked for their characters, never trusted by name; what none has is spelt out."""

from __future__ import annotations

from pathlib import Path

import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen

from headwise.errors import MissingExtra
from headwise.see import fonts
from headwise.see.fonts import LabelFonts, require_matplotlib, spell


def make_font(path: Path, characters: str, family: str = "Specimen") -> Path:
    """A font file whose every character is a black square."""
    pen = TTGlyphPen(None)
    pen.moveTo((0, 0))
    for corner in ((0, 700), (700, 700), (700, 0)):
        pen.lineTo(corner)
    pen.closePath()
    square = pen.glyph()
    names = [".notdef", *(f"u{ord(character):04X}" for character in characters)]
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder(names)
    builder.setupCharacterMap({ord(character): f"u{ord(character):04X}" for character in characters})
    builder.setupGlyf(dict.fromkeys(names, square))
    builder.setupHorizontalMetrics(dict.fromkeys(names, (800, 0)))
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": family, "styleName": "Regular"})
    builder.setupOS2()
    builder.setupPost()
    builder.save(path)
    return path


def test_latin_labels_keep_matplotlibs_font() -> None:
    labels = LabelFonts(["Freitag,", "5. M\u00e4rz", "$", "\u20ac"], fonts=[])
    assert labels.fit("5. M\u00e4rz") == ("5. M\u00e4rz", labels.plain)
    assert labels.missing == set() and labels.notice is None and labels.other is None


def test_characters_no_font_has_are_spelt_and_named() -> None:
    labels = LabelFonts(["2021", "\u5e74", "3\u6708"], fonts=[])
    assert labels.fit("3\u6708") == ("3U+6708", labels.plain)
    assert labels.fit("2021") == ("2021", labels.plain)
    assert labels.notice is not None and "\n" not in labels.notice
    assert "no installed font has Chinese or Japanese characters (looked for \u5e74 \u6708)" in labels.notice
    assert "U+5E74" in labels.notice and "fonts-noto-cjk" in labels.notice


def test_other_missing_characters_do_not_ask_for_a_chinese_font() -> None:
    notice = LabelFonts(["\U00013000"], fonts=[]).notice
    assert notice is not None and "these characters" in notice and "cjk" not in notice


def test_a_font_is_found_by_its_character_map(tmp_path: Path) -> None:
    liar = make_font(tmp_path / "NotoSansCJK-Regular.ttf", "abc", "Noto Sans CJK")
    honest = make_font(tmp_path / "plain.ttf", "0123\u5e74\u6708", "Plain")
    labels = LabelFonts(["2021\u5e74", "3\u6708", "Friday"], fonts=[liar, honest])
    assert labels.other == honest and labels.missing == set() and labels.notice is None
    assert labels.fit("\u5e74") == ("\u5e74", honest)
    assert labels.fit("Friday") == ("Friday", labels.plain)
    # in the other font, its own gaps are spelt: one label, one font
    assert labels.fit("9\u5e74") == ("U+0039\u5e74", honest)


def test_the_font_with_most_of_the_characters_wins(tmp_path: Path) -> None:
    one = make_font(tmp_path / "one.ttf", "\u5e74")
    two = make_font(tmp_path / "two.ttf", "\u5e74\u6708")
    labels = LabelFonts(["\u5e74\u6708\u65e5"], fonts=[one, two])
    assert labels.other == two and labels.missing == {"\u65e5"}
    assert labels.fit("\u5e74\u6708\u65e5")[0] == "\u5e74\u6708U+65E5"


def test_fonts_of_boxes_and_broken_fonts_are_passed_over(tmp_path: Path) -> None:
    boxes = make_font(tmp_path / "boxes.ttf", "\u5e74", "Last Resort")
    broken = tmp_path / "broken.ttf"
    broken.write_bytes(b"\0\1\0\0 no font")
    assert LabelFonts(["\u5e74"], fonts=[boxes, broken, tmp_path / "gone.ttf"]).missing == {"\u5e74"}


def test_unprintable_characters_are_spelt() -> None:
    assert LabelFonts(["a\n"], fonts=[]).fit("a\n")[0] == "aU+000A"
    assert spell("\U0001f600") == "U+1F600"


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    require_matplotlib("drawing")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"drawing needs matplotlib, .* pip install 'headwise\[plot\]'"):
        fonts.require_matplotlib("drawing")
