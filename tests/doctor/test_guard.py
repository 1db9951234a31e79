"""A stranger's code can neither talk on standard output, nor run for ever, nor end with a traceback."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from headwise.doctor.guard import guarded, running, talking_to_stderr, told
from headwise.errors import ConfigError, DataError


def test_everything_printed_goes_to_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    print("before")
    with talking_to_stderr():
        print("python")
        os.write(1, b"system\n")
        os.system("echo child")
        ctypes.CDLL(None).puts(b"c")
        sys.stdout = None  # a stranger may replace it
    print("after")
    output, error = capfd.readouterr()
    assert output.splitlines() == ["before", "after"]
    assert sorted(error.splitlines()) == ["c", "child", "python", "system"]


@pytest.mark.parametrize("in_thread", [False, True])
def test_an_endless_loop_is_stopped_even_one_that_catches_everything(in_thread: bool) -> None:
    said: list[str] = []

    def work() -> None:
        try:
            with guarded("it", 0.2):
                caught = 0
                while caught < 2:
                    try:
                        while True:
                            time.sleep(0.001)
                    except:  # noqa: E722
                        caught += 1
                while True:
                    time.sleep(0.001)
        except DataError as error:
            said.append(str(error))

    if in_thread:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join(20)
    else:
        work()
    assert len(said) == 1 and said[0].startswith("it: stopped after 0.2 s, at ")
    assert f"{Path(__file__).name}:" in said[0] and "--load-timeout" in said[0]


TRACED = """
import sys, threading, time
from headwise.doctor.guard import guarded
from headwise.errors import DataError

def work(seconds):
    try:
        with guarded("it", 0.05):
            time.sleep(seconds)
    except DataError as error:
        print(str(error)[:24])

for seconds in (0, 0.2):
    thread = threading.Thread(target=work, args=(seconds,))
    thread.start()
    thread.join()
sys.settrace(lambda frame, event, arg: None)
(lambda: None)()
sys.settrace(None)
print("traced")
"""


def test_a_limit_in_a_thread_leaves_the_interpreter_as_it_was() -> None:
    # an exception thrown and taken back made Python 3.11 hang in the first traced function
    done = subprocess.run([sys.executable, "-c", TRACED], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["it: stopped after 0.05 s", "traced"], done.stderr


def test_a_limit_leaves_no_timer_and_no_handler_behind() -> None:
    before = signal.getsignal(signal.SIGALRM)
    with guarded("it", 100):
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 90
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    assert signal.getsignal(signal.SIGALRM) is before


def test_somebody_elses_timer_goes_on() -> None:
    rung: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda *_: rung.append(1))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with guarded("it", 100):
            pass
        time.sleep(0.4)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert rung == [1]


def test_an_exception_is_one_line_with_the_users_line() -> None:
    def build() -> None:
        raise ValueError("bad\nwidth \x1b[31m")

    with pytest.raises(DataError) as error, guarded("model.py cannot be loaded"):
        build()
    said = str(error.value)
    assert said.startswith("model.py cannot be loaded: ValueError: bad width \\x1b[31m, at ")
    assert said.endswith(".<locals>.build") and f":{build.__code__.co_firstlineno + 1} in " in said


def test_sys_exit_and_syntax_errors_are_told_too() -> None:
    with pytest.raises(DataError, match=r"it: it calls sys.exit\(3\), at .*__main__"), guarded("it"):
        sys.exit(3)
    with pytest.raises(DataError, match=r"it: SyntaxError: .*, at model.py:1$"), guarded("it"):
        compile("x = (", "model.py", "exec")
    with pytest.raises(DataError, match=r"it: it calls sys.exit\(0\) when it runs"), running("it"):
        sys.exit(0)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError(), ConfigError("ours")])
def test_what_is_not_the_users_passes(error: BaseException) -> None:
    with pytest.raises(type(error)) as raised, guarded("it"):
        raise error
    assert raised.value is error


def test_running_lets_errors_pass() -> None:
    with pytest.raises(ZeroDivisionError), running("it"):
        raise ZeroDivisionError


def test_a_long_message_is_cut() -> None:
    assert len(told(ValueError("x" * 10_000))) < 320
    assert told(KeyError()) == "KeyError"
