"""The page and the pictures of one text."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.commands import SOURCES, fail, succeed

MODEL = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.layer = nn.Embedding(9, 8), nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, ids):
        x = self.table(ids)
        return self.layer(x, x, x)[0]


def subject():
    print("being made")
    torch.manual_seed(0)
    return {"model": Model(), "inputs": torch.tensor([[1, 2, 3], [4, 5, 6]]), "kind": "encoder"}
"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    (tmp_path / "model.py").write_text(MODEL)
    return str(tmp_path / "model.py")


@pytest.mark.parametrize("kind", ["cross", "encoder", "decoder"])
def test_attention_draws_a_picture(
    kind: str, run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "maps.png"
    output = succeed(capsys, "attention", run, "--source", SOURCES[0], "--output", str(path), "--kind", kind)
    assert output.endswith(f"{kind} attention: {path}\n")
    titles = {"cross": "Cross-attention", "encoder": "Encoder self", "decoder": "Decoder self"}
    assert [line.startswith(titles[kind]) for line in output.splitlines()[1:] if "collapsed:" in line] == [
        True
    ]
    assert path.read_bytes().startswith(b"\x89PNG")


def test_the_page_has_every_kind_and_a_picture_the_cross_attention(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, picture = tmp_path / "page.html", tmp_path / "a.svg"
    output = succeed(capsys, "attention", run, "--source", SOURCES[0], "-o", str(page))
    assert output.count("collapsed:") == 3 and output.endswith(f"\nattention: {page}\n")
    content = page.read_text(encoding="utf-8")
    assert content.startswith("<!DOCTYPE html>") and "http://" not in content.replace(
        "http://www.w3.org/", ""
    )
    output = succeed(capsys, "attention", run, "--source", SOURCES[0], "-o", str(picture))
    assert output.endswith(f"cross attention: {picture}\n") and output.count("collapsed:") == 1
    assert b"<svg" in picture.read_bytes()


def test_the_page_is_attention_html_where_nobody_says(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert succeed(capsys, "attention", run, "--source", SOURCES[0]).endswith("attention: attention.html\n")
    assert [path.name for path in tmp_path.iterdir()] == ["attention.html"]


def test_attention_of_nothing_is_one_line(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "between 1 and" in fail(capsys, "attention", run, "--source", "")
    assert "got 601" in fail(capsys, "attention", run, "--source", "1" * 600)


def test_attention_tells_the_translation_that_translate_gives(
    run: str, tmp_path: Path, typed: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    page = str(tmp_path / "a.html")
    output = succeed(capsys, "attention", run, "--source", SOURCES[0], "--output", page)
    typed(SOURCES[0])
    assert output.splitlines()[0] == succeed(capsys, "translate", run, "--beam", "1").rstrip("\n")
    output = succeed(capsys, "attention", run, "--source", SOURCES[0], "--target", "3. Mai 2011", "-o", page)
    assert output.splitlines()[0] == "3. Mai 2011"


@pytest.mark.parametrize(
    ("kind", "source", "first"),
    [
        ("language", "the cat", "Self-attention: 1 x 2 heads"),
        ("labelled", "the cat", "e"),
        ("images", "1", ""),
    ],
)
def test_runs_of_other_kinds(
    kind: str,
    source: str,
    first: str,
    run_of: Callable[[str], str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    output = succeed(capsys, "attention", run_of(kind), "--source", source, "-o", str(tmp_path / "a.html"))
    assert output.startswith(first) and output.count("collapsed:") == 1
    if kind != "language":
        name, chance = output.splitlines()[0].split("\t")
        assert name and 0 < float(chance) < 1


def test_a_model_file_is_shown_on_its_own_inputs(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "a.html"
    output = succeed(capsys, "attention", model, "--row", "1", "-o", str(page))
    assert output.startswith("Self-attention: 1 x 2 heads") and "being made" not in output
    assert "row 1 of the batch" in page.read_text(encoding="utf-8")
    assert "row must be from 0 to 1" in fail_after_printing(
        capsys, "attention", model, "--row", "2", "-o", str(page)
    )


def fail_after_printing(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line of the error; the model's own prints stand before it."""
    from headwise.cli import main

    assert main(arguments) == 2
    output, error = capsys.readouterr()
    assert output == ""
    return error.splitlines()[-1]


def test_a_public_checkpoint_is_read_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    transformers = pytest.importorskip("transformers")
    from headwise.data.text_tokenizer import TextTokenizer

    sizes = {"vocab_size": 16, "n_embd": 8, "n_layer": 2, "n_head": 2, "n_positions": 16}
    transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes)).save_pretrained(tmp_path / "gpt2")
    TextTokenizer.train(["abcdefg"], "characters", 0, []).save(tmp_path / "gpt2" / "tokenizer.json")
    capsys.readouterr()
    page = str(tmp_path / "a.html")
    output = succeed(capsys, "attention", str(tmp_path / "gpt2"), "--source", "abcd", "-o", page)
    assert output.startswith("Self-attention: 2 x 2 heads")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["RUN"], "--source must be given"),
        (
            ["RUN", "--source", "a", "-o", "maps.txt"],
            "must end in .html, .png or .svg: got maps.txt; maps.html would do",
        ),
        (["RUN", "--source", "a", "--row", "1"], "--row is for a model.py"),
        (
            ["RUN", "--source", "a", "--kind", "self"],
            "--kind must be one that the model has, encoder or decoder or cross",
        ),
        (["RUN", "--source", "a", "--device", "moon"], "--device must be one that is there, cpu"),
        (["RUN", "--source", "a", "--device", "meta"], "got meta (meta holds shapes and no numbers)"),
        (["no_such_run", "--source", "a"], "no run no_such_run; headwise train RECIPE makes one"),
        (["no_such_model.py"], "no file no_such_model.py"),
        (
            ["model.py", "--source", "a"],
            "--source is for runs and checkpoints: model.py brings its own inputs",
        ),
        (["model.py", "--row", "-1"], "--row must be at least 0: got -1"),
        (["model.py", "--load-timeout", "0"], "--load-timeout must be above 0 seconds: got 0"),
    ],
)
def test_what_cannot_be_is_one_line(
    words: list[str],
    said: str,
    run: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in fail(capsys, "attention", *(run if word == "RUN" else word for word in words))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("device", ["foo", "meta", "cuda:99"])
def test_a_device_that_is_not_there_is_one_line(
    device: str, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = fail(capsys, "attention", model, "--device", device)
    assert "--device must be one that is there, cpu" in said and f": got {device} (" in said


def test_a_mistake_in_the_arguments_loads_no_torch() -> None:
    program = (
        "import sys\nfrom headwise.cli import main\n"
        "assert main(['attention', 'model.py', '--source', 'a']) == 2\n"
        "assert main(['attention', 'nowhere', '--source', 'a']) == 2\n"
        "assert main(['attention', '--help']) == 0\n"
        "assert not {'torch', 'numpy', 'jaxtyping'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
