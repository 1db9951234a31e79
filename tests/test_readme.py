"""What the READMEs promise is so: their code runs, their links lead somewhere, their commands exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from headwise.cli import dispatch
from headwise.cli.arguments import CommandParser
from headwise.errors import ConfigError

ROOT = Path(__file__).resolve().parent.parent
READMES = [ROOT / "README.md", ROOT / "README.zh-CN.md"]
PAGES = [*READMES, ROOT / "CONTRIBUTING.md"]


def name_of(path: Path) -> str:
    return path.name


def python_block(text: str) -> str:
    """The one that makes a model; tests/test_docs_checkpoints.py runs the one that loads a model."""
    blocks: list[str] = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    making = [block for block in blocks if "EncoderDecoder" in block]
    assert len(blocks) == 2 and len(making) == 1
    return making[0]


def claims(code: str) -> list[tuple[str, tuple[int, ...]]]:
    """Each expression with the shape that the comment behind it claims: `x = f()  # [B, T] = (2, 3)`."""
    found: list[tuple[str, tuple[int, ...]]] = []
    for line in code.splitlines():
        claim = re.search(r"# \[[^\]]+\] = \(([\d, ]+)\)", line)
        if claim:
            statement = line.partition("#")[0]
            name, equals, _ = statement.partition(" = ")
            shape = tuple(int(size) for size in claim.group(1).split(","))
            found.append((name if equals else statement.strip().removesuffix(".shape"), shape))
    return found


@pytest.mark.parametrize("readme", READMES, ids=name_of)
def test_the_code_runs_and_its_comments_are_true(readme: Path) -> None:
    code = python_block(readme.read_text(encoding="utf-8"))
    names: dict[str, Any] = {}
    exec(compile(code, readme.name, "exec"), names)
    shapes = claims(code)
    assert shapes == [("logits", (1, 3, 1000)), ("maps.cross[0]", (1, 4, 3, 4))]
    for expression, shape in shapes:
        assert eval(expression, names).shape == shape, expression
    weights = names["maps"].cross[0]
    assert not weights[..., -1].any(), "the padding was looked at"
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 4, 3))


def missing_links(text: str, folder: Path) -> list[str]:
    """Relative links and pictures that lead nowhere, from the text outside of fenced blocks."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    targets = re.findall(r"\]\(([^)\s]+)[^)]*\)", prose)
    targets += re.findall(r"<(?:img|a)\s[^>]*?(?:src|href)=\"([^\"]+)\"", prose)
    local = [target.partition("#")[0] for target in targets if not re.match(r"\w+:|#", target)]
    return [target for target in local if not (folder / target).exists()]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    assert missing_links(page.read_text(encoding="utf-8"), ROOT) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "here.md").touch()
    text = (
        '[a](here.md#part) ![b](gone.png) [c](https://a.b/c) [d](#e) <img src="lost.png">\n```\n[x](y)\n```\n'
    )
    assert missing_links(text, tmp_path) == ["gone.png", "lost.png"]


def commands(text: str) -> list[list[str]]:
    """The words of each line of a fenced block that calls headwise, without what the shell takes."""
    found: list[list[str]] = []
    for block in re.findall(r"^```\w*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            call = re.match(r"(?:\$ )?(?:python -m )?headwise (.*)", line)
            if call:
                words = shlex.split(call.group(1), comments=True)
                shell = [place for place, word in enumerate(words) if word in ("<", ">", "|", "2>")]
                found.append(words[: shell[0]] if shell else words)
    return found


class _Parsed(Exception):
    """Raised in place of the work: the arguments were taken."""


def parse(words: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command take its arguments and do nothing with them."""
    parse_words = CommandParser.parse

    def stop(parser: CommandParser, arguments: Sequence[str]) -> dict[str, Any]:
        parse_words(parser, arguments)
        raise _Parsed

    with monkeypatch.context() as patch:
        patch.setattr(CommandParser, "parse", stop)
        command = dispatch._command(words[0])
        assert command is not None, words[0]
        with pytest.raises(_Parsed):
            command(words[1:])


@pytest.mark.parametrize("readme", READMES, ids=name_of)
def test_every_command_line_is_one(readme: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = commands(readme.read_text(encoding="utf-8"))
    assert {words[0] for words in found} >= {
        "train",
        "translate",
        "evaluate",
        "attention",
        "generate",
        "classify",
    }
    for words in found:
        parse(words, monkeypatch)
        recipe = ROOT / words[1] if len(words) > 1 and words[0] == "train" else None
        assert recipe is None or recipe.is_file(), recipe


def test_a_command_line_that_is_none_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "```\nheadwise train a.yaml --model.d_mode 3\nheadwise translate runs/a --beam 5 < a > b\n```\n"
    wrong, right = commands(text)
    assert right == ["translate", "runs/a", "--beam", "5"]
    parse(right, monkeypatch)
    with pytest.raises(ConfigError, match=r"did you mean --model\.d_model"):
        parse(wrong, monkeypatch)


@pytest.mark.parametrize("readme", READMES, ids=name_of)
def test_the_make_targets_exist(readme: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"\bmake ([a-z]+)\b", readme.read_text(encoding="utf-8")))
    assert {"demo", "test"} <= targets
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_python_files_that_prose_names_exist(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    named = re.findall(r"`(?:python )?((?:\w+/)*\w+\.(?:py|yaml))`", text)
    # a run's own files are made, not kept
    places = [ROOT, ROOT / "src/headwise"]
    lost = [name for name in named if not any((place / name).exists() for place in places)]
    assert [name for name in lost if name != "config.yaml"] == []


def doctor_session(text: str) -> tuple[str, str, str, str]:
    """The README's wrong file, the report on it, the repair as a diff, and the report after it."""
    wrong = re.search(r"^```py\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    diff = re.search(r"^```diff\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    reports = re.findall(r"^```\n\$ headwise doctor my_model\.py\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert wrong is not None and diff is not None and len(reports) == 2
    return wrong.group(1), reports[0], diff.group(1), reports[1]


def repaired(code: str, diff: str) -> str:
    for line in diff.splitlines():
        assert line[0] in "+-"
    old = [line[1:] for line in diff.splitlines() if line[0] == "-"]
    new = [line[1:] for line in diff.splitlines() if line[0] == "+"]
    assert code.count("\n".join(old)) == 1
    return code.replace("\n".join(old), "\n".join(new))


@pytest.mark.parametrize("readme", READMES, ids=name_of)
def test_the_doctors_session_is_what_comes(
    readme: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    code, report, diff, clean = doctor_session(readme.read_text(encoding="utf-8"))
    monkeypatch.chdir(tmp_path)
    for text, expected, exit_code in ((code, report, 1), (repaired(code, diff), clean, 0)):
        (tmp_path / "my_model.py").write_text(text, encoding="utf-8")
        assert dispatch.main(["doctor", "my_model.py"]) == exit_code
        assert capfdbinary.readouterr().out.decode() == expected


@pytest.mark.parametrize("readme", READMES, ids=name_of)
def test_the_walk_is_what_comes_and_the_repair_changes_the_axes_as_told(
    readme: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    text = readme.read_text(encoding="utf-8")
    code, _, diff, _ = doctor_session(text)
    session = re.search(r"^```\n\$ headwise trace my_model\.py\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert session is not None
    told = [part for part in session.group(1).split("...\n") if part]
    monkeypatch.chdir(tmp_path)
    for source in (code, repaired(code, diff)):
        (tmp_path / "my_model.py").write_text(source, encoding="utf-8")
        assert dispatch.main(["trace", "my_model.py"]) == 0
        walk = capfdbinary.readouterr().out.decode()
        assert (source == code) == all(part in walk for part in told)
        assert ("B 4 16 Dh" in walk) == (source == code) == ("B H T Dh" not in walk)
