"""Lines and pictures in, classes out, in their order; measured as scikit-learn measures."""

from __future__ import annotations

import gzip
import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console
from sklearn import metrics

from cli.commands import fail, succeed
from headwise.checkpoint.run import ImageRun, TextRun, load_run
from headwise.cli import classify as command
from headwise.cli import main
from headwise.data.images import load_pictures
from headwise.errors import MissingExtra
from headwise.see import fonts
from tiny_run import TEXT

RunOf = Callable[[str], str]
LINES = ["the cat sat", "", "dog", "   ", " ".join([TEXT.strip()] * 4)]
CUT = "headwise: warning: 1 text was cut: over 24 tokens\n"


def text_run(run_of: RunOf) -> TextRun:
    run = load_run(Path(run_of("labelled")))
    assert isinstance(run, TextRun)
    return run


def test_lines_keep_their_order_and_empty_ones_stay_empty(
    run_of: RunOf, typed: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run_of("labelled")
    typed("\n".join(LINES))
    assert main(["classify", folder]) == 0
    output, error = capsys.readouterr()
    assert error == CUT
    lines = output.split("\n")
    assert [bool(line) for line in lines] == [True, False, True, False, True, False]
    for line, text in zip(lines, LINES, strict=False):
        typed(text + "\n")
        assert main(["classify", folder, "-"]) == 0
        assert capsys.readouterr().out == line + "\n"
    for name, content in (
        ("a.txt", "\n".join(LINES).encode()),
        ("a.gz", gzip.compress("\n".join(LINES).encode())),
    ):
        (tmp_path / name).write_bytes(content)
        assert main(["classify", folder, str(tmp_path / name), "--output", str(tmp_path / "out")]) == 0
        assert capsys.readouterr().out == "" and (tmp_path / "out").read_text() == output
    typed("")
    assert succeed(capsys, "classify", folder) == ""


def test_class_and_probability_are_the_models(
    run_of: RunOf, typed: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    run = text_run(run_of)
    typed("the cat sat\n")
    name, probability = succeed(capsys, "classify", run_of("labelled")).rstrip("\n").split("\t")
    ids = [run.tokenizer.begin_id, *run.tokenizer.encode(["the cat sat"])[0]]
    with torch.no_grad():
        expected = run.model(torch.tensor([ids])).softmax(-1)[0]
    assert name == run.classes[int(expected.argmax())] and probability == f"{expected.max():.4f}"


def pictures(folder: Path, count: int = 3) -> list[str]:
    generator = np.random.default_rng(5)
    paths = [folder / f"{number}.png" for number in range(count)]
    for path in paths:
        Image.fromarray(generator.integers(0, 256, (4, 4), dtype=np.uint8)).save(path)
    return [str(path) for path in paths]


def test_pictures_are_named_by_lines_of_paths_or_alone(
    run_of: RunOf, typed: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, paths = run_of("images"), pictures(tmp_path)
    typed("\n".join(paths))
    output = succeed(capsys, "classify", folder)
    assert output == "".join(succeed(capsys, "classify", folder, path) for path in paths)
    run = load_run(Path(folder))
    assert isinstance(run, ImageRun)
    pixels = np.stack([np.asarray(Image.open(path), dtype=np.float32) / 255 for path in paths])[:, None]
    with torch.no_grad():
        expected = run.model(torch.from_numpy(pixels)).softmax(-1)
    assert output == "".join(f"{run.classes[int(row.argmax())]}\t{row.max():.4f}\n" for row in expected)


def test_what_is_no_picture_is_one_line(
    run_of: RunOf, typed: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run_of("images")
    assert "none.png is no picture that can be read: No such file" in fail(
        capsys, "classify", folder, "none.png"
    )
    (tmp_path / "text.png").write_text("no picture")
    assert "text.png is no picture that can be read" in fail(
        capsys, "classify", folder, str(tmp_path / "text.png")
    )
    typed(f"{pictures(tmp_path)[0]}\n\n")
    assert "every line must name a picture: got an empty line; drop it" in fail(capsys, "classify", folder)
    assert "reads text: got the picture a.png; name a text file" in fail(
        capsys, "classify", run_of("labelled"), "a.png"
    )


@pytest.mark.parametrize("kind", ["language", "masked"])
def test_runs_without_classes_are_refused(
    kind: str, run_of: RunOf, capsys: pytest.CaptureFixture[str]
) -> None:
    error = fail(capsys, "classify", run_of(kind), "a.png")
    assert "does not name classes: it was trained on data.kind text; headwise classify takes" in error


def measured(output: str) -> tuple[dict[str, str], list[list[str]]]:
    above, _, table = output.partition("\n\n")
    return dict(line.split() for line in above.splitlines()), [line.split() for line in table.splitlines()]


def test_texts_are_measured_as_scikit_learn_does(
    run_of: RunOf, tmp_path: Path, capsys: pytest.CaptureFixture[str], typed: Any
) -> None:
    folder = run_of("labelled")
    texts = [f"the {word} sat" for word in TEXT.replace(",", "").split()]
    labels = ["odd" if len(text) % 2 else "even" for text in texts]
    path = tmp_path / "test.csv"
    path.write_text(
        "\n".join(["label,text", *map(",".join, zip(labels, texts, strict=True))]), encoding="utf-8"
    )
    values, table = measured(succeed(capsys, "classify", folder, "--evaluate", str(path)))
    typed("\n".join(texts))
    named = [line.split("\t")[0] for line in succeed(capsys, "classify", folder).splitlines()]
    f1 = metrics.f1_score(labels, named, average="macro", zero_division=0, labels=["even", "odd"])
    assert values == {
        "examples": str(len(texts)),
        "accuracy": f"{metrics.accuracy_score(labels, named):.4f}",
        "macro-F1": f"{f1:.4f}",
    }
    counts = metrics.confusion_matrix(labels, named, labels=["even", "odd"]).tolist()
    assert table[0] == ["true", "\\", "named", "even", "odd", "F1"]
    assert [row[:3] for row in table[1:]] == [
        [name, *map(str, row)] for name, row in zip(["even", "odd"], counts, strict=True)
    ]


def test_pictures_are_measured_on_the_part_that_was_kept(
    run_of: RunOf, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run_of("images")
    run = load_run(Path(folder))
    assert isinstance(run, ImageRun)
    test = load_pictures(run.config.data.images, run.config.model.patches).test
    with torch.no_grad():
        named = run.model(torch.from_numpy(test.images)).argmax(-1)
    picture = tmp_path / "confusion.png"
    output = succeed(capsys, "classify", folder, "--evaluate", "test", "--picture", str(picture))
    values, _ = measured(output)
    right = int((named.numpy() == test.labels).sum())
    assert values["examples"] == str(len(test)) and values["accuracy"] == f"{right / len(test):.4f}"
    assert output.endswith(f"confusion matrix: {picture}\n") and picture.read_bytes().startswith(b"\x89PNG")
    assert "must be test, the part that it has kept: got a.npz" in fail(
        capsys, "classify", folder, "--evaluate", "a.npz"
    )


def test_a_terminal_gets_a_table(
    run_of: RunOf, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Console, "is_terminal", property(lambda _: True))
    output = succeed(capsys, "classify", run_of("images"), "--evaluate", "test")
    assert "\u2502" in output and "true \\ named" in output


def test_examples_that_do_not_fit_are_one_line(
    run_of: RunOf, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run_of("labelled")
    for name, content, said in (
        (
            "a.csv",
            "text,label\nx,prime\n",
            "must be one that the run has learnt: got prime; it has even, odd",
        ),
        (
            "b.csv",
            "text,class\nx,odd\n",
            "line 2 has no 'label': it has 'text', 'class'; the run expects the columns 'text' and 'label': "
            "rename those of the file",
        ),
        ("c.txt", "text,label\nx,odd\n", "c.txt must be .csv, .tsv or .jsonl"),
    ):
        (tmp_path / name).write_text(content)
        assert said in fail(capsys, "classify", folder, "--evaluate", str(tmp_path / name))
    error = fail(capsys, "classify", folder, "--evaluate", "none.csv")
    assert "cannot read none.csv: No such file or directory; name a .csv, .tsv or .jsonl file" in error


def test_pictures_of_other_classes_are_refused(
    run_of: RunOf, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = load_run(Path(run_of("images")))
    assert isinstance(run, ImageRun)
    source = Path(run.config.data.images.source)
    before = source.read_bytes()
    try:
        np.savez(source, images=np.zeros((30, 4, 4)), labels=np.arange(30) % 2)
        error = fail(capsys, "classify", run_of("images"), "--evaluate", "test")
    finally:
        source.write_bytes(before)
    assert "have other classes than the run: got 0, 1, it has 0, 1, 2; restore them" in error


def test_it_is_told_when_the_kept_part_may_have_been_learnt(
    run_of: RunOf, capsys: pytest.CaptureFixture[str]
) -> None:
    """Other pictures are drawn apart otherwise."""
    run = load_run(Path(run_of("images")))
    assert isinstance(run, ImageRun)
    source = Path(run.config.data.images.source)
    before = source.read_bytes()
    with np.load(source) as file:
        images, labels = file["images"], file["labels"]
    try:
        np.savez(source, images=images[1:], labels=labels[1:])
        assert main(["classify", run_of("images"), "--evaluate", "test"]) == 0
    finally:
        source.write_bytes(before)
    told = capsys.readouterr().err
    assert "are not those that" in told and "may now be in the test part; restore them" in told
    assert main(["classify", run_of("images"), "--evaluate", "test"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a.jpg", "must end in .png: got a.jpg; a.png would do"),
        ("", "must end in .png: got nothing; confusion.png would do"),
        ("/", "must end in .png: got /; confusion.png would do"),
    ],
)
def test_a_picture_of_another_name_is_refused(
    name: str, said: str, run_of: RunOf, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in fail(capsys, "classify", run_of("images"), "--evaluate", "test", "--picture", name)


def test_without_matplotlib_it_is_told_before_the_work(
    run_of: RunOf, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(purpose: str) -> None:
        raise MissingExtra("matplotlib", purpose, "plot")

    monkeypatch.setattr(fonts, "require_matplotlib", missing)
    monkeypatch.setattr(command, "_load", None)
    error = fail(capsys, "classify", run_of("images"), "--evaluate", "test", "--picture", "a.png")
    assert "drawing a confusion matrix needs matplotlib" in error


def test_a_person_is_answered_line_by_line(
    run_of: RunOf, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from cli.test_translate import Terminal

    terminal = Terminal([b"the cat\n", b"\n", b"dog\n"], lambda: capfd.readouterr().out)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(terminal)))
    assert main(["classify", run_of("labelled")]) == 0
    assert [seen.count("\n") for seen in terminal.seen[:4]] == [0, 1, 1, 1]
