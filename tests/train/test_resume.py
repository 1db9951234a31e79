"""Stopped at any moment and started again, a run ends with the same bits."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headwise import files as headwise_files
from headwise.config import RunConfig
from headwise.recipe_text import write_recipe
from headwise.train.loop import train
from tiny_run import ENVIRONMENT, OTHER_KINDS, Crash, CrashAfter, end, silent, tiny, tiny_kind, with_model

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "accumulate": {"accumulate": 2},
    "bfloat16": {"precision": "bfloat16"},
    "adamw": {"optimizer": "adamw", "weight_decay": 0.1, "schedule": "cosine"},
    "best": {"average_last": 1, "save_every": None},
    "bleu": {"watch": "bleu", "patience": 1, "max_steps": 12, "average_last": 3},
    "no-clip": {"clip_norm": 0.0, "schedule": "constant", "label_smoothing": 0.0},
}
MODELS: dict[str, dict[str, Any]] = {
    "plain": {"attention_dropout": 0.1, "feedforward_dropout": 0.1},
    "adamw": {"norm": "pre", "positions": "learned", "tie_embeddings": False, "attention_bias": True},
}


def config_of(variant: str, folder: Path) -> RunConfig:
    return with_model(tiny(folder, **VARIANTS[variant]), **MODELS.get(variant, {}))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, Any]]:
    """The end of a run that was never stopped."""
    ends: dict[str, dict[str, Any]] = {}

    def of(variant: str) -> dict[str, Any]:
        if variant not in ends:
            folder = tmp_path_factory.mktemp("whole") / "run"
            train(config_of(variant, folder), silent())
            ends[variant] = end(folder)
        return ends[variant]

    return of


@pytest.mark.parametrize("variant", VARIANTS)
def test_stopped_again_and_again_the_end_is_the_same(
    variant: str, whole: Callable[[str], dict[str, Any]], tmp_path: Path
) -> None:
    expected = whole(variant)
    config = config_of(variant, tmp_path / "run")
    for step in (1, 3, 5, 6):  # what was not saved is trained again
        with pytest.raises(Crash):
            train(config, CrashAfter(step))
    train(config, silent())
    assert end(tmp_path / "run") == expected
    train(config, silent())  # a finished run stays as it is
    assert end(tmp_path / "run") == expected


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_every_kind_of_task_goes_on_as_if_never_stopped(kind: str, tmp_path: Path) -> None:
    """Dropout, hidden tokens and shifted pictures are drawn anew where they were left."""
    settings = {"max_steps": 8, "accumulate": 2, "watch": "loss", "samples": 2}
    train(tiny_kind(kind, tmp_path / "a" / "whole", **settings), silent())
    expected = end(tmp_path / "a" / "whole")
    config = tiny_kind(kind, tmp_path / "a" / "run", **settings)
    for step in (1, 3, 5, 8):
        with pytest.raises(Crash):
            train(config, CrashAfter(step))
    train(config, silent())
    found = end(tmp_path / "a" / "run")
    data = replace(found["config"], data=expected["config"].data)  # whose folders have other names
    assert found | {"config": data} == expected
    train(config, silent())  # a finished run stays as it is
    assert end(tmp_path / "a" / "run") == found


def test_two_runs_end_alike_and_another_seed_does_not(
    whole: Callable[[str], dict[str, Any]], tmp_path: Path
) -> None:
    """The comparison has teeth: one number other than the seed's would be seen."""
    expected = whole("best")
    train(config_of("best", tmp_path / "again"), silent())
    assert end(tmp_path / "again") == expected
    train(tiny(tmp_path / "other", **VARIANTS["best"], seed=2), silent())
    other = end(tmp_path / "other")
    assert other["model"] != expected["model"]
    assert other["metrics"] != expected["metrics"]


def test_a_run_may_be_moved(whole: Callable[[str], dict[str, Any]], tmp_path: Path) -> None:
    with pytest.raises(Crash):
        train(config_of("plain", tmp_path / "here"), CrashAfter(5))
    shutil.move(tmp_path / "here", tmp_path / "there")
    train(config_of("plain", tmp_path / "there"), silent())
    assert end(tmp_path / "there") == whole("plain")


def crash_at(monkeypatch: pytest.MonkeyPatch, number: int) -> Iterator[None]:
    """Crash instead of the number-th call that makes a file durable, names it, or removes one."""
    calls = 0

    def instead(function: Callable[..., object]) -> Callable[..., object]:
        def call(*given: Any, **named: Any) -> object:
            nonlocal calls
            calls += 1
            if calls == number:
                raise Crash
            return function(*given, **named)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", instead(os.fsync))
        patch.setattr(os, "replace", instead(os.replace))
        patch.setattr(Path, "unlink", instead(Path.unlink))
        patch.setattr(headwise_files.contextlib, "suppress", _Nothing)  # a kill tidies nothing up
        yield


class _Nothing:
    """In place of contextlib.suppress: its block cannot be left out, but the Crash it meets passes."""

    def __init__(self, *errors: type[BaseException]) -> None:
        self._errors = errors

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> bool:
        return kind is not None and issubclass(kind, self._errors)


@pytest.mark.slow
def test_crashed_at_every_point_of_every_save_the_end_is_the_same(
    whole: Callable[[str], dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = whole("plain")
    number = 0
    while True:
        number += 1
        folder = tmp_path / str(number)
        config = config_of("plain", folder)
        crashing = crash_at(monkeypatch, number)
        next(crashing)
        try:
            train(config, silent())
        except Crash:
            next(crashing, None)
        else:
            next(crashing, None)
            break  # there were fewer such calls
        train(config, silent())
        assert end(folder) == expected, f"crashed at call {number}"
    assert number > 40


KILLER = """
import json, os, random, signal, sys, time
from pathlib import Path
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "tensorboard" else find(name, *rest)
import torch, yaml, babel.dates, babel.numbers
from tiny_run import silent, tiny
from headwise.data.corpus import load_corpus
from headwise.train.loop import train

torch.set_num_threads(1)
folder = Path(sys.argv[1])
config = dict(train_size=200, max_steps=30, validate_every=7, save_every=3, log_every=5, samples=1)

def start(run):
    child = os.fork()
    if child == 0:
        try:
            train(tiny(run, **config), silent())
            os._exit(0)
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
    return child

load_corpus(tiny(folder, **config).data)  # babel reads its locales once for all children
os.waitpid(start(folder / "warm"), 0)
began = time.monotonic()
code = os.waitpid(start(folder / "whole"), 0)[1]
assert code == 0, code
whole = time.monotonic() - began
generator = random.Random(1)
kills, rounds = [], 0
while len(kills) < 10:
    run = folder / f"round{rounds}"
    longest = whole * (0.3, 1.0)[rounds % 2]  # many times soon after a start, or anywhere up to the end
    rounds += 1
    while True:
        delay = generator.uniform(0, longest)
        child = start(run)
        began, status = time.monotonic(), (0, 0)
        while status[0] == 0 and time.monotonic() - began < delay:
            time.sleep(0.002)
            status = os.waitpid(child, os.WNOHANG)
        if status[0] == 0:
            os.kill(child, signal.SIGKILL)
            status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status[1]):
            kills.append(delay)
            longest *= 1.2  # or a slow start might never reach the first save
            continue
        assert status[1] == 0, status
        break
print(json.dumps({"kills": len(kills), "rounds": rounds, "seconds": whole}))
"""


@pytest.mark.slow
def test_killed_at_random_moments_the_end_is_the_same(tmp_path: Path) -> None:
    """Real processes, SIGKILL; a fork each, since torch takes seconds to import."""
    result = subprocess.run(
        [sys.executable, "-c", KILLER, str(tmp_path)],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout.splitlines()[-1])
    assert report["kills"] >= 10
    expected = end(tmp_path / "whole")
    for number in range(report["rounds"]):
        assert end(tmp_path / f"round{number}") == expected


@pytest.mark.slow
def test_the_command_killed_early_and_after_a_save_and_given_again_ends_the_same(tmp_path: Path) -> None:
    def config(folder: Path) -> RunConfig:
        return tiny(folder, max_steps=60, validate_every=20, save_every=5, log_every=5)

    folder, recipe = tmp_path / "run", tmp_path / "recipe.yaml"
    recipe.write_text(write_recipe(config(folder)), encoding="utf-8")
    command = [sys.executable, "-m", "headwise", "train", str(recipe)]
    for awaited in ("config.yaml", "training.safetensors"):
        process = subprocess.Popen(command, env=ENVIRONMENT, stderr=subprocess.DEVNULL)
        try:
            until = time.monotonic() + 120
            while not (folder / awaited).exists() and process.poll() is None and time.monotonic() < until:
                time.sleep(0.001)
        finally:
            process.kill()
        assert process.wait() == -signal.SIGKILL, awaited  # not at its end before it was killed
        assert (folder / awaited).exists()
        assert (folder / "training.safetensors").exists() == (awaited == "training.safetensors")
    again = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=120)
    assert again.returncode == 0, again.stderr
    assert f"going on after step 5 of {folder}" in again.stderr
    train(config(tmp_path / "whole"), silent())
    assert end(folder) == end(tmp_path / "whole")
