"""Whatever is typed, written in a recipe or lies in a data file: it works, or is one line and exit code 2."""

from __future__ import annotations

import contextlib
import gzip
import io
import shutil
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from headwise.cli import dispatch, main
from headwise.cli.arguments import CommandParser, nested
from headwise.cli.recipe import write_recipe
from headwise.cli.settings import build, sections
from headwise.config import DataConfig, ParallelConfig
from headwise.data.corpus import encode_pairs, load_corpus
from headwise.data.tokenizer import Tokenizer
from headwise.errors import HeadwiseError
from headwise.train import loop
from tiny_run import silent, tiny

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = [setting for section in sections() for setting in section.settings]
PATHS = [setting.path for setting in SETTINGS]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
# Words that a parser of numbers, lists or YAML may stumble over.
WORDS = r"""- -- = null ~ true nan inf -inf 1e400 -0 0x10 1_0 010 1:30 [ ] { } [[de]] *a &a !!int
!!python/none % # @x ` ? | > \n ' " 2021-01-01"""
LONGER = ("", " ", "[de, zh]", "{a: b}", "a: b", "&a b", "!!int x", "\t", "9" * 30, "1" * 5000, "[" * 500)
TRICKY = st.sampled_from([*WORDS.split(), *LONGER])
NUMBERS = st.integers(-3, 2**70).map(str) | st.floats().map(str)
PLAUSIBLE = st.sampled_from(
    ["1", "2", "64", "0.5", "1e-3", "true", "pre", "adamw", "[fr, ja]", "a.txt", "cross"]
)
VALUES = TEXT | TRICKY | NUMBERS | PLAUSIBLE


class Trained(HeadwiseError):
    """Stands for a training: it takes too long here."""


def judge(arguments: Sequence[str], stdin: bytes = b"", may_train: bool = False) -> int:
    """Run one command; whatever escapes it is the failure that is looked for."""
    training = (
        contextlib.nullcontext() if may_train else mock.patch.object(loop, "train", side_effect=Trained("ok"))
    )
    output, error = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    typed = io.TextIOWrapper(io.BytesIO(stdin), "utf-8")
    sides = contextlib.redirect_stdout(output), contextlib.redirect_stderr(error)
    with sides[0], sides[1], mock.patch("sys.stdin", typed), training:
        code = main(arguments)
    said = error.getvalue().splitlines()
    last = said[-1] if said else ""
    assert code in (0, 2)
    assert "Traceback" not in error.getvalue()
    if code == 2:
        assert last.startswith("headwise: ") and len(last) < 1000 and last.isprintable()
        assert [line for line in said if line.startswith("headwise: ") and "warning" not in line] == [last]
    return code


def test_the_judge_has_teeth(monkeypatch: pytest.MonkeyPatch) -> None:
    assert judge(["--help"]) == 0 and judge(["fly"]) == 2

    def chatter(_: object) -> int:
        import sys

        print("usage: headwise\nheadwise: error", file=sys.stderr)
        return dispatch._fail("twice", 2)

    monkeypatch.setattr(dispatch, "_command", lambda _: chatter)
    with pytest.raises(AssertionError):
        judge(["train"])

    def bug(_: object) -> int:
        raise KeyError("bug")

    monkeypatch.setattr(dispatch, "_command", lambda _: bug)
    with pytest.raises(KeyError):
        judge(["train"])


OPTIONS = st.builds(
    lambda path, cut, value, is_joined: (
        [f"--{path[:cut]}={value}"] if is_joined else [f"--{path[:cut]}", value]
    ),
    st.sampled_from(
        [*PATHS, "beam", "n_best", "length_penalty", "max_length", "source", "target", "output", "kind"]
    ),
    st.sampled_from([None, None, None, None, 3, -1]),
    VALUES,
    st.booleans(),
)


@settings(max_examples=250)
@given(
    command=st.sampled_from([*dispatch.COMMANDS, "train", "train"]),
    words=st.lists(OPTIONS | st.lists(VALUES, min_size=1, max_size=1), max_size=5),
    place=st.sampled_from([[], [str(ROOT / "recipes/dates.yaml")], ["nowhere"], [str(ROOT)]]),
)
def test_any_arguments(command: str, words: list[list[str]], place: list[str]) -> None:
    judge([command, *place, *(word for group in words for word in group)])


def test_each_setting_with_each_tricky_value() -> None:
    parser = CommandParser("train", "RECIPE", "")
    parser.add_settings(sections())
    refused = 0
    for setting in SETTINGS:
        for value in ("null", "", "nan", "1e400", "-1", "9" * 400, "[1]", "a: [", "true"):
            try:
                build(parser.parse([f"{setting.option}={value}"]))
            except HeadwiseError as error:
                assert setting.path.split(".")[-1] in str(error) and len(str(error)) < 400
                refused += 1
    assert refused > 5 * len(SETTINGS)


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | TEXT | st.dates() | st.binary(max_size=4)
TREES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["model", "data", "dates", "d_model", "run"]) | SCALARS, inner, max_size=3
        )
    ),
    max_leaves=6,
)


RECIPES = (
    st.binary(max_size=60)
    | st.text(max_size=60).map(lambda text: text.encode("utf-8", "replace"))
    | TREES.map(lambda tree: yaml.safe_dump(tree).encode())
    | st.dictionaries(st.sampled_from(PATHS), SCALARS | TREES, max_size=4).map(
        lambda values: yaml.safe_dump(nested(values)).encode()
    )
    | st.tuples(st.sampled_from(PATHS), VALUES).map(
        lambda pair: (pair[0].replace(".", ": {") + f": {pair[1]}" + "}" * pair[0].count(".")).encode()
    )
)


@settings(max_examples=150)
@given(content=RECIPES)
@example(content=b"{a: &a [x], b: &b [*a, *a], c: [*b, *b]}")
@example(content=b"[" * 3000)
@example(content=b"? {a: b}\n: c")
@example(content=b"!!set {model}")
@example(content=b"data: {dates: {languages: [[de], {a: b}, null]}}")
def test_any_recipe(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.yaml"
    path.write_bytes(content)
    judge(["train", str(path)])


SENTENCES = (
    TEXT
    | st.sampled_from(["", " ", "a", "b c", "\u5e74", "\u2028", "\r", "\0", "e\u0301", "<eos>", "\U0001f600"])
    | st.integers(1, 300).map(lambda n: "long " * n)
)
LINES = st.lists(SENTENCES, max_size=8).map(lambda lines: "\n".join(lines).encode())
FILES = LINES | LINES.map(lambda text: gzip.compress(text, mtime=0)) | st.binary(max_size=40)
ALIGNED = st.lists(
    st.tuples(*[SENTENCES.map(lambda line: line.replace("\n", " "))] * 4), min_size=1, max_size=6
)
FOUR = st.tuples(FILES, FILES, FILES, FILES) | ALIGNED.map(
    lambda rows: tuple("\n".join(column).encode() + b"\n" for column in zip(*rows, strict=True))
)


def write_files(folder: Path, files: Sequence[bytes]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, content in zip(("train.s", "train.t", "val.s", "val.t"), files, strict=True):
        (folder / name).write_bytes(content)
    return folder


def parallel(folder: Path) -> ParallelConfig:
    return ParallelConfig(str(folder), "train.s", "train.t", "val.s", "val.t", test_source="val.s")


@settings(max_examples=200)
@given(files=FOUR)
def test_any_data_files(files: tuple[bytes, ...], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = write_files(tmp_path_factory.getbasetemp() / "fuzz-data", files)
    try:
        corpus = load_corpus(DataConfig(kind="parallel", parallel=parallel(folder)))
        tokenizer = Tokenizer.train([*corpus.train.source, *corpus.train.target], 60)
        source, target, _ = encode_pairs(corpus.train, tokenizer, 32)
    except HeadwiseError as error:
        assert 10 < len(str(error)) < 1000
    else:
        assert len(source) == len(target) > 0
        assert (
            tokenizer.decode(tokenizer.encode(["a"])) == ["a"]
            or tokenizer.unk_id in tokenizer.encode(["a"])[0]
        )


@pytest.mark.slow
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(files=FOUR)
@example(files=(b"a b\nb a\n",) * 4)
def test_training_on_any_data_files(
    files: tuple[bytes, ...], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = write_files(tmp_path_factory.getbasetemp() / "fuzz-training", files)
    config = tiny(folder / "run", max_steps=1)
    recipe = folder / "recipe.yaml"
    recipe.write_text(write_recipe(config))
    shutil.rmtree(folder / "run", ignore_errors=True)
    names = "folder", "train_source", "train_target", "validation_source", "validation_target"
    options = [f"--data.parallel.{name}={getattr(parallel(folder), name)}" for name in names]
    judge(["train", str(recipe), "--data.kind=parallel", *options], may_train=True)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fuzz") / "run"
    loop.train(tiny(folder, max_steps=1), silent())
    return folder


@pytest.mark.slow
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=FILES, beam=st.sampled_from(["1", "2"]))
def test_any_text_to_translate(content: bytes, beam: str, run: Path) -> None:
    judge(["translate", str(run), "--beam", beam, "--max_length", "5"], stdin=content)


DAMAGE = st.tuples(
    st.sampled_from(["config.yaml", "tokenizer.json", "model.safetensors"]),
    st.integers(0, 10**6),
    st.sampled_from(["cut", "flip", "insert", "empty"]),
    st.binary(min_size=1, max_size=4),
)


@settings(max_examples=60)
@given(damage=DAMAGE)
def test_any_damage_to_a_run(damage: tuple[str, int, str, bytes], run: Path) -> None:
    name, where, kind, filler = damage
    broken = run.parent / "broken"
    broken.mkdir(exist_ok=True)
    for file in ("config.yaml", "tokenizer.json", "model.safetensors"):
        shutil.copy(run / file, broken / file)
    content = bytearray((run / name).read_bytes())
    at = where % min(len(content), 4_000)  # most of what can be misread lies in front
    if kind == "cut":
        del content[at:]
    elif kind == "flip":
        content[at] ^= filler[0]
    elif kind == "insert":
        content[at:at] = filler
    else:
        content.clear()
    (broken / name).write_bytes(content)
    judge(["translate", str(broken), "--beam", "1", "--max_length", "3"], stdin=b"<de> 1\n")
