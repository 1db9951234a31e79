"""The pages of docs/checks are those of the checks as they are, and their examples are true."""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from headwise.doctor import needs
from headwise.doctor.check import Check, checks
from headwise.doctor.examine import examine_subject
from headwise.doctor.load import load

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs" / "checks"
CHECKS = checks()


def imported(path: Path) -> ModuleType:
    found = importlib.util.spec_from_file_location(path.stem, path)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[path.stem] = module  # dataclasses look their module up
    found.loader.exec_module(module)
    return module


make = imported(ROOT / "docs" / "make_checks.py")


def id_of(card: Check) -> str:
    return card.id


@pytest.mark.slow
@pytest.mark.parametrize("card", CHECKS, ids=id_of)
def test_nothing_is_found_in_the_file_put_right(card: Check, tmp_path: Path) -> None:
    example = make.read(make.specimen(card.id))
    path = tmp_path / example.path.name
    path.write_text(example.right, encoding="utf-8")
    loaded = load(str(path))
    with loaded.running():
        report = examine_subject(
            loaded.subject, making=loaded.making, target=path.name, assumed=loaded.assumed, notes=loaded.notes
        )
    assert report.ok("warning"), str(report)
    assert not report.with_verdict("could-not-run"), str(report)


@pytest.mark.parametrize("card", CHECKS, ids=id_of)
def test_the_page_is_what_would_be_written(card: Check) -> None:
    page = (PAGES / f"{card.id}.md").read_text(encoding="utf-8")
    expected = make.page(card, make.read(make.specimen(card.id)), make.kept(card))
    assert page == expected, "run python docs/make_checks.py"


@pytest.mark.parametrize("card", CHECKS, ids=id_of)
def test_the_report_is_of_the_specimen_as_it_is(card: Check) -> None:
    report, example = make.kept(card), make.read(make.specimen(card.id))
    head, place = re.split(rf"\n  {re.escape(example.path.name)}:{example.line}\s", report, maxsplit=1)
    assert " ".join(head.split()).startswith(f"{card.id} {card.name} {card.title} [")
    blamed = example.as_marked.splitlines()[example.line - 1].split()
    assert place.split()[: len(blamed)] == blamed, "run python docs/make_checks.py"


@pytest.mark.parametrize("card", CHECKS, ids=id_of)
def test_right_and_wrong_are_both_python_and_differ(card: Check) -> None:
    example = make.read(make.specimen(card.id))
    assert example.wrong != example.right
    for code in (example.wrong, example.right, example.as_marked):
        compile(code, example.path.name, "exec")
        assert "# RIGHT" not in code and "# BUG" not in code


def test_the_index_is_what_would_be_written() -> None:
    index = (PAGES / "README.md").read_text(encoding="utf-8")
    assert index == make.index(), "run python docs/make_checks.py"
    assert re.findall(r"^\| \[(HW\d{3})\]\(\1\.md\) \|", index, re.MULTILINE) == [card.id for card in CHECKS]


def test_every_page_is_of_a_check() -> None:
    assert {path.name for path in PAGES.iterdir()} == {"README.md"} | {f"{card.id}.md" for card in CHECKS}


def test_links_lead_somewhere() -> None:
    for path in PAGES.glob("*.md"):
        prose = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for target in re.findall(r"\]\(([^)\s]+)\)", prose):
            file, _, anchor = target.partition("#")
            assert (PAGES / file).is_file(), f"{path.name}: {target}"
            if anchor:
                headings = re.findall(r"^## (.*)$", (PAGES / file).read_text(encoding="utf-8"), re.MULTILINE)
                assert anchor in {heading.lower().replace(" ", "-") for heading in headings}, target


def test_every_need_of_a_check_has_words() -> None:
    assert set(make.LACKING) == needs.KNOWN


def test_pages_are_compared_written_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pages = tmp_path / "checks"
    shutil.copytree(PAGES, pages)
    monkeypatch.setattr(make, "PAGES", pages)
    make.main(["--keep-reports"])
    capsys.readouterr()
    with (pages / "HW101.md").open("a", encoding="utf-8") as page:
        page.write("x")
    (pages / "HW999.md").write_text("of a check that is gone", encoding="utf-8")
    assert make.main(["--check", "--keep-reports"]) == 1
    assert capsys.readouterr().out == "differs: HW101.md\ndiffers: HW999.md\n"
    assert make.main(["--keep-reports"]) == 0
    assert capsys.readouterr().out == "written: HW101.md\nremoved: HW999.md\n"
    assert make.main(["--check", "--keep-reports"]) == 0
    (pages / "HW101.md").unlink()
    assert make.main(["--keep-reports"]) == 1
    assert "HW101 has no page" in capsys.readouterr().err


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "HW999_example.py"
        path.write_text(text, encoding="utf-8")
        return path

    return write


MARKED = """\
class Model:
    def __init__(self):
        self.a = 1  # RIGHT + self.b = 2
        self.c = 3  # RIGHT self.c = 4
        self.d = 5  # RIGHT

    def forward(self):
        x = self.a  # BUG HW999
        # RIGHT for each in (self.a, self.b):
        # RIGHT     x = each
        return x
        # RIGHT


def other():
    pass
"""


def test_marks_are_read(written: Callable[[str], Path]) -> None:
    example = make.read(written(MARKED))
    assert example.right.splitlines() == [
        "class Model:",
        "    def __init__(self):",
        "        self.a = 1",
        "        self.b = 2",
        "        self.c = 4",
        "",
        "    def forward(self):",
        "        for each in (self.a, self.b):",
        "            x = each",
        "",
        "",
        "def other():",
        "    pass",
    ]
    assert example.wrong.splitlines()[5:10] == [
        "",
        "    def forward(self):",
        "        x = self.a",
        "        return x",
        "",
    ]
    assert example.line == 8
    assert example.as_marked.splitlines()[7:12] == ["        x = self.a", "", "", "        return x", ""]
    assert len(example.as_marked.splitlines()) == len(MARKED.splitlines())
    assert example.shown == (3, 4, 5, 8, 9)


def test_the_difference_shows_what_changes_alone(written: Callable[[str], Path]) -> None:
    marked = MARKED.replace("        # RIGHT\n", "")
    told = make.difference(make.read(written(marked)))
    assert told.splitlines() == [
        "         self.a = 1",
        "-        self.c = 3",
        "-        self.d = 5",
        "+        self.b = 2",
        "+        self.c = 4",
        "",
        "     def forward(self):",
        "-        x = self.a",
        "+        for each in (self.a, self.b):",
        "+            x = each",
        "         return x",
    ]


def test_of_a_long_class_only_the_function_is_shown() -> None:
    filler = "\n".join(f"        self.a{i} = {i}" for i in range(make.LONG))
    short = "    @decorated\n    def f(self):\n        return 1\n"
    code = f"class Model(Base):\n    def __init__(self):\n{filler}\n\n{short}"
    last = len(code.splitlines())
    assert make.excerpt(code, [last]) == (
        "class Model(Base):\n    ...\n\n    @decorated\n    def f(self):\n        return 1"
    )
    assert (
        make.excerpt("def f():\n    return 1\n\n\ndef g():\n    return 2\n", [6]) == "def g():\n    return 2"
    )
