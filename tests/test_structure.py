"""The arrows between packages point one way, the READMEs' file trees are the disk, no stray words."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

import headwise

PACKAGE = Path(headwise.__file__).parent
ROOT = Path(__file__).resolve().parent.parent

# Who may import whom, inside headwise. The most specific row speaks; without a row nothing may be
# imported. Nobody has `cli` in its row but `__main__`, nobody `lab` but the command line and itself,
# and in the doctor only `probe` may know a model of ours.
BASE = {"config", "errors", "files", "pages", "shapes"}
MAY_IMPORT: dict[str, set[str]] = {
    "__init__": {"config", "checkpoint", "data", "decode", "doctor", "errors", "evaluate", "model", "see"},
    "__main__": {"cli"},
    "errors": set(),
    "shapes": set(),
    "config": {"config", "errors"},
    "files": {"errors"},
    "pages": set(),
    "recipe_text": {"config", "errors"},
    "model": {"config", "errors", "shapes", "model"},
    "data": BASE | {"data"},
    "decode": {"config", "errors", "shapes", "model", "data", "decode"},
    "checkpoint": BASE | {"recipe_text", "model", "data", "checkpoint"},
    "evaluate": BASE | {"model", "data", "decode", "checkpoint", "evaluate"},
    "see": BASE | {"model", "data", "decode", "checkpoint", "doctor", "see"},
    "train": BASE | {"model", "data", "decode", "checkpoint", "evaluate", "see", "train"},
    "doctor.probe": BASE | {"model", "doctor"},
    "doctor.machine": BASE | {"__version__", "doctor"},
    "doctor.own_run": BASE | {"checkpoint", "data", "train", "doctor"},
    "doctor": BASE | {"doctor"},
    "testing": {"doctor"},
    "lab": BASE | {"model", "data", "decode", "checkpoint", "evaluate", "see", "train", "lab"},
    "cli": BASE
    | {
        "__version__",
        "recipe_text",
        "model",
        "data",
        "decode",
        "checkpoint",
        "evaluate",
        "see",
        "train",
        "doctor",
        "lab",
        "cli",
    },
}


def imported(source: str, package: str) -> set[str]:
    """Modules of headwise that a source imports anywhere in it, without the leading `headwise.`."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            # `from headwise import model` names the module, `from headwise.model import block` the package
            found |= {f"{origin}.{a.name}" for a in node.names} if origin == "headwise" else {origin}
    return {name.partition(".")[2] for name in found if name.split(".")[0] == "headwise"}


def row(module: str) -> set[str]:
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        if ".".join(parts[:length]) in MAY_IMPORT:
            return MAY_IMPORT[".".join(parts[:length])]
    return set()


def forbidden(module: str, source: str) -> list[str]:
    """The imports of a module of headwise that its row does not allow."""
    package = ".".join(["headwise", *module.split(".")[:-1]])
    return sorted(name for name in imported(source, package) if name.split(".")[0] not in row(module))


def test_imports_point_one_way() -> None:
    wrong = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        wrong[module] = forbidden(module, path.read_text(encoding="utf-8"))
    assert len(wrong) > 20
    assert {module: names for module, names in wrong.items() if names} == {}


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("model.attention", "import headwise.files"),
        ("model.attention", "def f():\n    from headwise.data.tokenizer import Tokenizer"),
        ("model.attention", "from headwise import data"),
        ("model.attention", "from ..train import loss"),
        ("model.attention", "from .. import cli"),
        ("model.attention", "from headwise import EncoderDecoder"),
        ("decode.beam", "from headwise.train.loop import train"),
        ("train.loop", "from headwise.cli import main"),
        ("train.loop", "import headwise.lab.table"),
        ("doctor.checks.mask", "from headwise.model.attention import attend"),
        ("unheard_of", "import headwise.errors"),
    ],
)
def test_a_wrong_arrow_is_found(module: str, source: str) -> None:
    assert len(forbidden(module, source)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        (
            "model.block",
            "from headwise.model.attention import attend\nfrom .norm import LayerNorm\nimport os",
        ),
        ("doctor.probe", "from headwise.model.attention import attend"),
        ("lab.run", "from headwise.lab.table import spread"),
    ],
)
def test_a_right_arrow_is_not(module: str, source: str) -> None:
    assert forbidden(module, source) == []


def test_modules_are_imported_by_name_only_where_names_are_lazy() -> None:
    users = [p for p in PACKAGE.rglob("*.py") if "import_module" in p.read_text(encoding="utf-8")]
    # the doctor's registry imports every file beside checks/__init__.py, that of foreign layouts every file
    # beside itself; load imports what the user names
    assert {p.relative_to(PACKAGE).as_posix() for p in users} <= {
        "__init__.py",
        "checkpoint/foreign/layout.py",
        "doctor/check.py",
        "doctor/load.py",
    }


def file_tree(readme: str) -> dict[str, str]:
    """Path -> what it is, from the fenced block that opens with the line `src/headwise/`.

    Two spaces a level; a directory ends in `/` and needs no words, a file is followed by its one line.
    """
    block = re.search(r"^```\w*\n(src/headwise/.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    assert block is not None, "no fenced block opens with a line src/headwise/"
    found: dict[str, str] = {}
    above: list[str] = []
    for line in block.group(1).splitlines():
        name, _, what = line.strip().partition(" ")
        depth, odd = divmod(len(line) - len(line.lstrip()), 2)
        assert not odd and depth <= len(above), f"indented by what is not two spaces a level: {line!r}"
        path = "".join([*above[:depth], name])
        assert path not in found, f"listed twice: {path}"
        found[path] = what.strip()
        if name.endswith("/"):
            above = [*above[:depth], name]
    return found


def mistakes(tree: dict[str, str], root: Path) -> list[str]:
    """How a file tree differs from the disk; __init__.py files may be left out.

    A directory that has its own words and lists no file stands for all of its files.
    """
    on_disk = {p.relative_to(root).as_posix() for p in (root / "src/headwise").rglob("*.py")}
    listed = {path for path in tree if not path.endswith("/")}
    whole = [
        d for d, what in tree.items() if d.endswith("/") and what and not any(p.startswith(d) for p in listed)
    ]
    on_disk = {path for path in on_disk if not any(path.startswith(directory) for directory in whole)}
    wrong = [f"not listed: {path}" for path in on_disk - listed if not path.endswith("__init__.py")]
    wrong += [f"not on disk: {path}" for path in tree if not (root / path).exists()]
    wrong += [f"without its one line: {path}" for path in listed if not tree[path]]
    return sorted(wrong)


def test_the_readmes_list_the_files_that_exist() -> None:
    english = file_tree((ROOT / "README.md").read_text(encoding="utf-8"))
    assert mistakes(english, ROOT) == []
    chinese = file_tree((ROOT / "README.zh-CN.md").read_text(encoding="utf-8"))
    assert list(chinese) == list(english)
    assert mistakes(chinese, ROOT) == []


def test_a_wrong_tree_is_found(tmp_path: Path) -> None:
    (tmp_path / "src/headwise/model").mkdir(parents=True)
    for name in ("__init__.py", "cli.py", "model/__init__.py", "model/norm.py"):
        (tmp_path / "src/headwise" / name).touch()
    right = "text\n```\nsrc/headwise/\n  cli.py    commands\n  model/\n    norm.py  LayerNorm\n```\nmore\n"
    assert mistakes(file_tree(right), tmp_path) == []
    assert mistakes(file_tree(right.replace("  cli.py    commands\n", "")), tmp_path) == [
        "not listed: src/headwise/cli.py"
    ]
    assert mistakes(file_tree(right.replace("norm.py", "form.py")), tmp_path) == [
        "not listed: src/headwise/model/norm.py",
        "not on disk: src/headwise/model/form.py",
    ]
    assert mistakes(file_tree(right.replace("  LayerNorm", "")), tmp_path) == [
        "without its one line: src/headwise/model/norm.py"
    ]
    whole = "```\nsrc/headwise/\n  cli.py    commands\n  model/  the parts\n```\n"
    assert mistakes(file_tree(whole), tmp_path) == []
    assert mistakes(file_tree(whole.replace("  the parts", "")), tmp_path) == [
        "not listed: src/headwise/model/norm.py"
    ]
    with pytest.raises(AssertionError, match="two spaces"):
        file_tree(right.replace("  cli.py", "   cli.py"))


def untested(package: Path, tests: Path) -> list[str]:
    """The modules that have no file of tests at the place that mirrors theirs."""
    modules = [path.relative_to(package) for path in package.rglob("*.py")]
    return sorted(
        module.as_posix()
        for module in modules
        if module.name not in ("__init__.py", "__main__.py")
        and module.parent.as_posix() != "doctor/checks"  # their tests are the specimens
        and not (tests / module.parent / f"test_{module.name}").is_file()
    )


def test_the_tests_mirror_the_modules() -> None:
    assert untested(PACKAGE, ROOT / "tests") == []


def test_a_module_without_its_tests_is_found(tmp_path: Path) -> None:
    for name in ("src/model/__init__.py", "src/model/norm.py", "src/files.py", "tests/model/test_norm.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert untested(tmp_path / "src", tmp_path / "tests") == ["files.py"]
    (tmp_path / "tests/model/test_norm.py").rename(tmp_path / "tests/test_norm.py")
    assert untested(tmp_path / "src", tmp_path / "tests") == ["files.py", "model/norm.py"]


# Spelt in two halves, or this file would name itself.
STRAY = re.compile(
    "|".join(["/" + "work/", "/tmp" + r"/w\b", "pypi" + r"\.org", "python" + "hosted", "/opt" + "/wheels"])
)


def test_no_file_names_the_place_where_it_was_written() -> None:
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listing.returncode != 0:
        pytest.skip("not a git checkout")
    stray: list[str] = []
    for name in filter(None, listing.stdout.split("\0")):
        path = ROOT / name
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        lines = enumerate(text.splitlines(), start=1)
        stray += [f"{name}:{number}: {line.strip()}" for number, line in lines if STRAY.search(line)]
    assert stray == []


def test_the_type_checker_stands_in_every_module_but_those_of_recordings() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8").replace("\\\n", "")
    listed = re.search(r"--jaxtyping-packages=(\S+)", text)
    assert listed is not None
    checked = set(listed[1].split(","))
    left_out = ("headwise.doctor.", "headwise.see.walk.", "headwise.see.watch.")
    without_shapes = {"headwise.shapes", "headwise.pages", "headwise.recipe_text", "headwise.testing"}
    for path in PACKAGE.rglob("*.py"):
        name = ".".join(["headwise", *path.relative_to(PACKAGE).with_suffix("").parts])
        if path.name.startswith("__") or name.startswith(left_out) or name in without_shapes:
            continue
        parts = name.split(".")
        assert any(".".join(parts[:length]) in checked for length in range(2, len(parts) + 1)), name
