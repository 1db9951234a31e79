"""Ctrl-C: once is a wish, twice is an order, and everything is as it was afterwards."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from headwise.errors import RunError
from headwise.train.interrupt import noted_interrupt
from headwise.train.loop import train
from tiny_run import ENVIRONMENT, end, metrics, silent, tiny


def test_once_is_noted_and_twice_interrupts() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), noted_interrupt() as interrupt:
        assert not interrupt.is_set
        signal.raise_signal(signal.SIGINT)
        assert interrupt.is_set
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_where_it_was_ignored_it_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with noted_interrupt() as interrupt:
            signal.raise_signal(signal.SIGINT)
            assert not interrupt.is_set
    finally:
        signal.signal(signal.SIGINT, before)


def test_another_thread_leaves_signals_alone() -> None:
    seen: list[object] = []

    def run() -> None:
        with noted_interrupt() as interrupt:
            seen.append((signal.getsignal(signal.SIGINT), interrupt.is_set))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [(signal.getsignal(signal.SIGINT), False)]


TRAINER = """
import sys
from pathlib import Path
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "tensorboard" else find(name, *rest)
import time
from tiny_run import CrashAfter, silent, tiny
from headwise.errors import HeadwiseError
from headwise.train.loop import train

class Slow(CrashAfter):
    def advance(self, step, *rest):
        print(step, flush=True)
        time.sleep(float(sys.argv[2]))

try:
    train(tiny(Path(sys.argv[1]), save_every=None), Slow(0))
except HeadwiseError as error:
    print(type(error).__name__, error)
except KeyboardInterrupt:
    print("interrupted")
"""


def start_trainer(folder: Path, pause: float) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", TRAINER, str(folder), str(pause)],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "1\n"
    return process


@pytest.mark.slow
def test_control_c_saves_says_how_to_go_on_and_changes_nothing(tmp_path: Path) -> None:
    train(tiny(tmp_path / "whole", save_every=None), silent())
    folder = tmp_path / "run"
    process = start_trainer(folder, 0.5)
    try:
        with pytest.raises(RunError, match=r"run is being trained by another process; wait for it or stop"):
            train(tiny(folder, save_every=None), silent())
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[0].splitlines()[-1]
    finally:
        process.kill()
    assert process.returncode == 0
    stopped = f", everything is saved in {folder}; the same command goes on from there"
    assert said.startswith("Stopped stopped after step ")
    assert said.endswith(stopped)
    assert (folder / "training.safetensors").exists()
    assert metrics(folder) == metrics(tmp_path / "whole")[: len(metrics(folder))]
    train(tiny(folder, save_every=None), silent())
    assert end(folder) == end(tmp_path / "whole")


@pytest.mark.slow
def test_a_second_control_c_interrupts_at_once(tmp_path: Path) -> None:
    process = start_trainer(tmp_path / "run", 30)
    try:
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=20)[0].splitlines()[-1]
    finally:
        process.kill()
    assert said == "interrupted"
    train(tiny(tmp_path / "run", save_every=None), silent())


def test_a_polite_kill_is_noted_as_control_c_is() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with noted_interrupt() as interrupt:
        signal.raise_signal(signal.SIGTERM)
        assert interrupt.is_set
    assert signal.getsignal(signal.SIGTERM) is before
