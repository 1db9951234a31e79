"""Every module imports alone, without warnings or output; the light ones without torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import headwise

PACKAGE = Path(headwise.__file__).parent
LIGHT = [
    "headwise",
    "headwise.cli",
    "headwise.config",
    "headwise.errors",
    "headwise.files",
    "headwise.shapes",
]

# Importing torch takes two seconds, times every module. So one interpreter loads what is not ours, under
# -W error like everything else, and forks: each child holds no headwise module but the one it is asked for.
IMPORT_EACH_ALONE = """
import importlib, json, os, sys, tempfile, traceback
import jaxtyping, numpy, torch

package, failures = sys.argv[1], {}
for name in sys.argv[2:]:
    assert not [m for m in sys.modules if m.split(".")[0] == package]
    with tempfile.TemporaryFile() as output:
        child = os.fork()
        if child == 0:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            code = 1
            try:
                importlib.import_module(name)
                code = 0
            except BaseException:
                traceback.print_exc()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        code = os.waitpid(child, 0)[1]
        output.seek(0)
        said = output.read().decode()
        if code or said:
            failures[name] = said or f"exit status {code}"
print(json.dumps(failures))
"""


def module_names(package: Path) -> list[str]:
    found: list[str] = []
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        found.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return found


def import_each_alone(package: Path) -> dict[str, str]:
    """What each module said on import, of those that said anything or failed."""
    code = f"import sys; sys.path.insert(0, {str(package.parent)!r})\n{IMPORT_EACH_ALONE}"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, package.name, *module_names(package)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
    return json.loads(done.stdout)


def test_every_module_imports_alone_in_silence() -> None:
    assert len(module_names(PACKAGE)) > 20
    failures = import_each_alone(PACKAGE)
    assert not failures, "\n\n".join(f"{name}\n{said}" for name, said in failures.items())


def test_a_module_that_warns_or_talks_or_needs_another_first_is_found(tmp_path: Path) -> None:
    package = tmp_path / "specimen"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "fine.py").write_text("import torch\n")
    (package / "talks.py").write_text("print('hello')\n")
    (package / "warns.py").write_text("import warnings\nwarnings.warn('old', DeprecationWarning)\n")
    (package / "leans.py").write_text("import specimen\nspecimen.fine\n")
    failures = import_each_alone(package)
    assert set(failures) == {"specimen.talks", "specimen.warns", "specimen.leans"}
    assert "hello" in failures["specimen.talks"]
    assert "DeprecationWarning" in failures["specimen.warns"]


@pytest.mark.parametrize("name", LIGHT)
def test_light_modules_load_nothing_heavy(name: str) -> None:
    code = f"import sys, {name}\nprint(*{{m.split('.')[0] for m in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert "headwise" in loaded
    assert not loaded & {"torch", "numpy", "jaxtyping", "tokenizers", "matplotlib"}


def test_all_is_what_can_be_imported() -> None:
    for name in headwise.__all__:
        value = getattr(headwise, name)
        assert name == "__version__" or value.__name__.rpartition(".")[2] == name
    assert sorted(headwise.__all__) == sorted(["__version__", *headwise._HOME])
    assert set(headwise.__all__) <= set(dir(headwise))
    public = {name for name in vars(headwise) if not name.startswith("_")}
    modules = {path.stem for path in PACKAGE.iterdir()}
    machinery = {"annotations", "import_module", "TYPE_CHECKING", "jaxtyping"}  # the last by pytest's hook
    assert public - modules - machinery <= set(headwise.__all__)


def test_a_name_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'Transformer'; it has .*EncoderDecoder"):
        _ = headwise.Transformer


def test_every_error_is_public() -> None:
    from headwise import errors

    raised = {
        n for n, v in vars(errors).items() if isinstance(v, type) and issubclass(v, errors.HeadwiseError)
    }
    assert raised <= set(headwise.__all__)
    for name in raised:
        assert name in (errors.__doc__ or ""), (
            f"{name} is missing from the tree in the docstring of errors.py"
        )
