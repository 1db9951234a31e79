"""Which installed font can draw which characters: a Chinese label must not come out as empty boxes."""

# pyright: reportUnknownMemberType=false
# matplotlib leaves **kwargs without a type
from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headwise.errors import MissingExtra

if TYPE_CHECKING:
    from matplotlib.ft2font import FT2Font

# Fonts that often have Chinese and Japanese characters: only the order of looking.
_LIKELY = (
    "cjk",
    "sourcehan",
    "wqy",
    "wenquan",
    "droidsansfallback",
    "pingfang",
    "hiragino",
    "msyh",
    "simhei",
)
# Fonts with a glyph for everything, which says nothing: boxes.
_PRETENDERS = ("lastresort", "adobeblank", "unifontupper")


def require_matplotlib(purpose: str) -> None:
    """Refuse to go on without matplotlib.

    Errors: MissingExtra that names the purpose and the extra to install.
    """
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise MissingExtra("matplotlib", purpose, "plot")


class LabelFonts:
    """The fonts for some texts: matplotlib's own where it can, one installed font for the other characters.

    `missing` are the characters that no font has; they are spelt U+5E74.
    """

    def __init__(self, texts: Iterable[str], fonts: Sequence[Path] | None = None) -> None:
        """Look for fonts; `fonts` are looked through instead of those installed."""
        from matplotlib import font_manager

        self.plain = Path(font_manager.findfont("DejaVu Sans"))
        characters = {character for text in texts for character in text}
        self._foreign = characters - _charted(self.plain, characters)
        installed = sorted(map(Path, font_manager.findSystemFonts())) if fonts is None else fonts
        self.other = _widest(installed, self._foreign)
        self._covered = _charted(self.other, characters) if self.other else set[str]()
        self.missing = {character for character in self._foreign - self._covered if character.isprintable()}

    def fit(self, text: str) -> tuple[str, Path]:
        """The text as it can be drawn, and the font file to draw it with."""
        font = self.plain
        if self.other is not None and any(c in self._covered for c in text if c in self._foreign):
            font = self.other
        here = self._covered if font is self.other else {c for c in text if c not in self._foreign}
        return "".join(c if c in here else spell(c) for c in text), font

    @property
    def notice(self) -> str | None:
        """One line for the user when characters are missing, else None."""
        if not self.missing:
            return None
        is_east_asian = any("\u2e80" <= c <= "\ufaff" or c >= "\U00020000" for c in self.missing)
        kind = "Chinese or Japanese characters" if is_east_asian else "these characters"
        remedy = "; Noto Sans CJK has them (package fonts-noto-cjk)" if is_east_asian else ""
        some = sorted(self.missing)[:5]
        return (
            f"no installed font has {kind} (looked for {' '.join(some)}): "
            f"labels show code points such as {spell(some[0])}{remedy}"
        )


def spell(character: str) -> str:
    """U+5E74 for a character that cannot be drawn."""
    return f"U+{ord(character):04X}"


def _widest(fonts: Iterable[Path], characters: set[str]) -> Path | None:
    """The font that has most of the characters; the likely ones first, so that few are opened."""

    def likely(font: Path) -> bool:
        return any(part in _squeezed(font.name) for part in _LIKELY)

    best: tuple[int, Path | None] = 0, None
    for font in sorted(fonts, key=lambda font: not likely(font)):
        if best[0] == len(characters):
            break
        count = len(_charted(font, characters))
        if count > best[0]:
            best = count, font
    return best[1]


def _charted(font: Path, characters: set[str]) -> set[str]:
    """Those of the characters that the font's own character map has."""
    face = _open(font)
    return (
        set() if face is None else {c for c in characters if c.isprintable() and face.get_char_index(ord(c))}
    )


def _open(font: Path) -> FT2Font | None:
    from matplotlib.ft2font import FT2Font

    try:
        face = FT2Font(str(font))
    except Exception:  # a broken font file raises one of several types; it is then no font for us
        return None
    is_pretender = any(part in _squeezed(f"{font.name}{face.family_name}") for part in _PRETENDERS)
    return face if face.scalable and not is_pretender else None


def _squeezed(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())
