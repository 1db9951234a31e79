"""The documentation site: its snippets print what it shows, it builds without network, and it is whole."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import torch
from mkdocs.exceptions import PluginError

import headwise
from headwise.doctor.check import checks

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
CODE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHOWN = re.compile(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
QUESTIONS = sorted(path.name for path in (DOCS / "questions").glob("*.md") if path.name != "index.md")
PAGES = [
    path.relative_to(DOCS).as_posix()
    for path in sorted(DOCS.rglob("*.md"))
    if path.parent.name != "checks" and path.relative_to(DOCS).parts[0] != "zh"
]


def read(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def printed(code: str, page: str) -> str:
    """What a snippet prints, line ends without blanks."""
    told = io.StringIO()
    try:
        with contextlib.redirect_stdout(told):
            exec(compile(code, page, "exec"), {"__name__": "page"})
    finally:
        torch.set_printoptions(profile="default", sci_mode=None)
    return "".join(line.rstrip() + "\n" for line in told.getvalue().splitlines())


# ---- the pages as they are written


@pytest.mark.parametrize(
    ("page", "number"), [(page, n) for page in PAGES for n in range(len(SHOWN.findall(read(page))))]
)
def test_a_snippet_prints_what_stands_beneath_it(page: str, number: int) -> None:
    code, shown = SHOWN.findall(read(page))[number]
    assert printed(code, page) == shown


def test_there_are_six_questions_each_with_a_snippet() -> None:
    assert len(QUESTIONS) == 6
    assert all(SHOWN.search(read(f"questions/{name}")) for name in QUESTIONS)


@pytest.mark.parametrize("name", QUESTIONS)
def test_both_languages_of_a_question_have_the_same_code_and_the_same_checks(name: str) -> None:
    english, chinese = read(f"questions/{name}"), read(f"zh/questions/{name}")
    assert CODE.findall(english) == CODE.findall(chinese)
    checked = [re.findall(r"checks/(HW\d+)\.md", text) for text in (english, chinese)]
    assert checked[0] == checked[1] != []
    assert [text.count("\n## ") for text in (english, chinese)] == [english.count("\n## ")] * 2
    assert f"](../zh/questions/{name})" in english and f"](../../questions/{name})" in chinese


@pytest.mark.parametrize(
    ("page", "readme"),
    [
        (folder + page, name)
        for folder, name in (("", "README.md"), ("zh/", "README.zh-CN.md"))
        for page in ("index.md", "first_run.md")
    ],
)
def test_what_a_terminal_shows_is_what_the_readme_shows(page: str, readme: str) -> None:
    known = (ROOT / readme).read_text(encoding="utf-8")
    shown = [text for _, text in CODE.findall(read(page)) if len(text.splitlines()) > 4]
    assert shown
    for text in shown:
        assert text in known, f"{page} shows what {readme} does not:\n{text}"


def test_links_also_lead_somewhere_in_the_repository() -> None:
    for path in DOCS.rglob("*.md"):
        for target in re.findall(r"\]\(([^)\s]+)\)", CODE.sub("", path.read_text(encoding="utf-8"))):
            file = target.partition("#")[0]
            if file and not re.match(r"[a-z]+:", target):
                assert (path.parent / file).is_file(), f"{path.relative_to(ROOT)}: {target}"


def test_the_home_pages_count_the_checks() -> None:
    assert f"[{len(checks())} mistakes]" in read("index.md")
    assert f"[{len(checks())} 种错误]" in read("zh/index.md")


# ---- the site, built


class References(HTMLParser):
    """What a page loads, what it links to, and the names that links may end in."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.linked: list[str] = []
        self.names: set[str] = set()
        self.language = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        held = {name: value or "" for name, value in attrs}
        self.names |= {held[name] for name in ("id", "name") if name in held}
        if tag == "html":
            self.language = held.get("lang", "")
        if tag == "a":
            self.linked += [held["href"]] if "href" in held else []
        else:
            self.loaded += [
                held[name] for name in ("src", "href", "srcset", "data", "poster") if name in held
            ]
            self.loaded += re.findall(r"url\(['\"]?([^)'\"]+)", held.get("style", ""))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole site, built as `make docs` builds it, but elsewhere."""
    folder = tmp_path_factory.mktemp("site")
    # never --quiet: it keeps warnings from --strict
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {
        **os.environ,
        "NO_MKDOCS_2_WARNING": "1",
        "no_proxy": "",
        "https_proxy": "http://127.0.0.1:9",
    }
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr, done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, References]:
    found: dict[str, References] = {}
    for path in sorted(site.rglob("*.html")):
        references = References()
        references.feed(path.read_text(encoding="utf-8"))
        found[path.relative_to(site).as_posix()] = references
    return found


@pytest.mark.slow
def test_nothing_is_loaded_from_elsewhere(site: Path, pages: dict[str, References]) -> None:
    for page, references in pages.items():
        for target in references.loaded:
            assert not re.match(r"(https?:)?//", target), f"{page} loads {target}"
    for sheet in site.rglob("*.css"):
        for target in re.findall(r"(?:url\(|@import )['\"]?([^)'\";]+)", sheet.read_text(encoding="utf-8")):
            assert target.startswith("data:") or not re.match(r"(https?:)?//", target), f"{sheet}: {target}"


@pytest.mark.slow
def test_every_link_leads_to_a_page_and_a_heading(site: Path, pages: dict[str, References]) -> None:
    count = 0
    for page, references in pages.items():
        if page == "404.html":  # its links begin where the site will stand
            continue
        for target in references.linked:
            parts = urlsplit(target)
            if parts.scheme:
                continue
            path = (site / page).parent / unquote(parts.path) if parts.path else site / page
            path = path / "index.html" if path.is_dir() else path
            assert path.exists(), f"{page} links to {target}"
            led = path.resolve().relative_to(site.resolve()).as_posix()
            if parts.fragment and led in pages and not parts.fragment.startswith("__codelineno"):
                assert unquote(parts.fragment) in pages[led].names, f"{page} links to {target}"
            count += 1
    assert count > 1000


@pytest.mark.slow
def test_the_api_has_every_public_name(pages: dict[str, References]) -> None:
    names = {
        name for page, references in pages.items() if page.startswith("api/") for name in references.names
    }
    homes = {name: module for module, public in headwise._MODULES.items() for name in public}
    assert set(homes) | {"__version__"} == set(headwise.__all__)
    missing = [name for name, module in homes.items() if f"headwise.{module}.{name}" not in names]
    assert missing == []
    assert "headwise.testing.assert_healthy" in names


@pytest.mark.slow
def test_every_check_and_every_page_is_in_the_site(pages: dict[str, References]) -> None:
    assert {f"checks/{card.id}.html" for card in checks()} <= set(pages)
    written = {path.relative_to(DOCS).with_suffix(".html").as_posix() for path in DOCS.rglob("*.md")}
    assert {name.replace("README.html", "index.html") for name in written} <= set(pages)
    assert "settings.html" not in pages and "recipes/settings.html" in pages


@pytest.mark.slow
def test_pages_say_their_language(pages: dict[str, References]) -> None:
    for page, references in pages.items():
        assert references.language == ("zh" if page.startswith("zh/") else "en"), page


@pytest.mark.slow
def test_code_of_the_repository_stands_in_the_pages(site: Path) -> None:
    page = (site / "questions" / "norm.html").read_text(encoding="utf-8")
    text = re.sub(r"<[^>]+>", "", page)
    assert "return F.layer_norm(x, (x.size(-1),), self.gain, self.bias, self.eps)" in text
    assert "class RMSNorm" not in text
    for recipe in (ROOT / "recipes").glob("*.yaml"):
        first = recipe.read_text(encoding="utf-8").splitlines()[0]
        text = re.sub(r"<[^>]+>", "", (site / "recipes" / "index.html").read_text(encoding="utf-8"))
        assert first.split(":")[0] in text, f"recipes/index.md does not show {recipe.name}"


# ---- how it is made


@pytest.fixture(scope="module")
def made() -> Iterator[dict[str, Callable[..., str]]]:
    """The functions of the two modules that mkdocs runs."""
    sys.path.insert(0, str(DOCS))
    try:
        import make_docstrings
        import make_site
    finally:
        sys.path.remove(str(DOCS))
    yield {**vars(make_docstrings), **vars(make_site)}


def test_a_part_of_a_module_is_the_lines_it_is_written_in(made: dict[str, Callable[..., str]]) -> None:
    path = "src/headwise/model/norm.py"
    assert made["part"](path, "make_norm").startswith("def make_norm(config")
    inner = made["part"](path, "LayerNorm.extra_repr")
    assert inner.startswith("def extra_repr(self)") and inner.endswith('eps={self.eps}"\n')
    with pytest.raises(PluginError, match=r"norm\.py has no BatchNorm"):
        made["part"](path, "BatchNorm")


def test_links_out_of_docs_are_told_from_others(made: dict[str, Callable[..., str]]) -> None:
    outside = made["outside"]
    assert outside("docs/checks/HW101.md", "../../tests/x.py") == "tests/x.py"
    assert outside("docs/a/b.md", "../../src/m.py#name") == "src/m.py"
    for inside in ("../c.md", "c.md#d", "#e", "https://example.org/x.py", "mailto:a@example.org"):
        assert outside("docs/a/b.md", inside) is None


def test_fenced_code_is_left_alone(made: dict[str, Callable[..., str]]) -> None:
    text = "x\n\n```text\nx\n```\n\nx"
    assert made["apart"](re.compile("x"), "y", text) == "y\n\n```text\nx\n```\n\ny"


def test_docstrings_become_markdown(made: dict[str, Callable[..., str]]) -> None:
    docstring = (
        "Mix the values.\n\nsoftmax(s) v        Paper, eq. 1\n\n"
        "keep: True where a <bos> may\nlook, or `x_y`.\nLaw: a_b * c."
    )
    assert made["as_markdown"](docstring) == (
        "Mix the values.\n\n```text\nsoftmax(s) v        Paper, eq. 1\n```\n\n"
        "**keep**: True where a &lt;bos&gt; may\nlook, or `x_y`.\n\n**Law**: a\\_b \\* c."
    )


def test_a_paper_is_no_named_line(made: dict[str, Callable[..., str]]) -> None:
    assert made["as_markdown"]("BERT: Pre-training, figure 2") == "BERT: Pre-training, figure 2"


def test_settings_are_those_of_the_command(made: dict[str, Callable[..., str]]) -> None:
    page = made["settings_page"]()
    assert "| `model.d_model` | `512` | width of every position's vector |" in page
    assert "| `data.dates.languages` | `[de, zh]` |" in page and "| `train.compile` | `false` |" in page
