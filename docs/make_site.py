"""What mkdocs is told of this repository, so that one text reads well both in a repository and as a site.

- A link to a file outside docs/ (a module, a specimen, a recipe) leads to a page made of that file. Markdown
  (benchmarks/*.md) keeps its place; what is no Markdown is shown under source/.
- A paragraph that is nothing but such a link is followed by the file itself, or, with #name, by that class,
  function or method of it: code is never copied into a page, where it would grow old.
- `checks/*.md`, `benchmarks/*.md` and `api/*.md` in the navigation become a page each. Those of the API are
  made of the public names, for mkdocstrings to fill in; recipes/settings.md of the configuration classes.
- Pages under zh/ are Chinese, and what the theme says about them is, too.
"""

from __future__ import annotations

import ast
import re
import textwrap
from pathlib import Path
from posixpath import dirname, join, normpath, relpath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import headwise
from headwise.cli.settings import sections

ROOT = Path(__file__).resolve().parent.parent
PUBLIC_BY_MODULE = {**headwise._MODULES, "testing": ("assert_healthy",)}  # the last by its full name alone
TITLES = {
    "checkpoint": "Checkpoints",
    "config": "Configuration",
    "data": "Data",
    "decode": "Decoding",
    "doctor": "The doctor",
    "errors": "Errors",
    "evaluate": "Evaluation",
    "model": "Models",
    "see": "Seeing",
    "testing": "Testing",
    "train": "Training",
}

_UNSEARCHED = "---\nsearch: {exclude: true}\n---\n"
_FENCED = re.compile(r"^(```+).*?^\1\s*?$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[([^\]\n]+)\]\(([^)\s]+)\)")
_ALONE = re.compile(r"(?<=\n\n)\[([^\]\n]+)\]\(([^)\s#]+)(?:#([\w.]+))?\)(?=\n\n|\n?\Z)")


# ---- the navigation


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages that a pattern of the navigation stands for in its place."""
    made = {"checks/*.md": check_nav, "benchmarks/*.md": benchmark_nav, "api/*.md": api_nav}

    def filled(entry: Any) -> Any:
        if isinstance(entry, list):
            return [filled(each) for each in entry]
        if isinstance(entry, dict):
            return {title: filled(inner) for title, inner in entry.items()}
        return made[entry]() if entry in made else entry

    config.nav = filled(config.nav)
    return config


def check_nav() -> list[Any]:
    """The index, then the groups as it lists them, each with its pages."""
    nav: list[Any] = [{"All checks": "checks/README.md"}]
    for group in re.split(r"^## ", read("docs/checks/README.md"), flags=re.MULTILINE)[1:]:
        rows = re.findall(r"^\| \[(HW\d+)\]\((\S+)\) \| (\S+) \|", group, re.MULTILINE)
        if rows:
            nav.append(
                {group.partition("\n")[0]: [{f"{id} {name}": f"checks/{page}"} for id, page, name in rows]}
            )
    return nav


def benchmark_nav() -> list[Any]:
    """Every report beside the benchmarks."""
    return [f"benchmarks/{path.name}" for path in sorted((ROOT / "benchmarks").glob("*.md"))]


def api_nav() -> list[Any]:
    """The index, then a page for each package that has public names."""
    return ["api/index.md", *({title(package): f"api/{package}.md"} for package in packages())]


# ---- pages that are made


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the settings, the API, and every file outside docs/ that some page links to."""
    for uri, text in {"recipes/settings.md": settings_page(), **api_pages()}.items():
        files.append(File.generated(config, uri, content=text))
    pages = [file.src_uri for file in files.documentation_pages() if file.generated_by is None]
    to_do = [f"docs/{uri}" for uri in pages] + benchmark_nav()
    seen = set(to_do)
    while to_do:
        path = to_do.pop()
        if not path.startswith("docs/"):
            if not (ROOT / path).is_file():
                continue  # mkdocs then says which link leads nowhere
            is_page = path.endswith(".md")
            text = read(path) if is_page else f"{_UNSEARCHED}# {path}\n\n{fenced(path, read(path))}\n"
            files.append(File.generated(config, uri_of(path), content=text))
            if not is_page:
                continue
        targets = {target for target in (outside(path, each) for _, each in links(read(path))) if target}
        to_do += sorted(targets - seen)
        seen |= targets
    return files


def packages() -> list[str]:
    """The packages and modules that hold public names."""
    return sorted({module.partition(".")[0] for module in PUBLIC_BY_MODULE})


def title(package: str) -> str:
    """What its page is called."""
    return TITLES.get(package, package.capitalize())


def api_pages() -> dict[str, str]:
    """Address -> Markdown: for each package its public names, and an index of all of them."""
    pages: dict[str, str] = {}
    index = [
        "# API",
        "Every public name. `import headwise` costs nothing: each name is fetched from its module when it is "
        "first asked for, so `headwise.attend` and `from headwise import attend` work alike. The letters in "
        "shapes are those of [the axis legend](../source/src/headwise/shapes.py.md).",
    ]
    for package in packages():
        names = [
            (module, name)
            for module, public in sorted(PUBLIC_BY_MODULE.items())
            for name in public
            if module.partition(".")[0] == package
        ]
        told = [f"# {title(package)}", *(f"::: headwise.{module}.{name}" for module, name in names)]
        pages[f"api/{package}.md"] = "\n\n".join(told) + "\n"
        index += [
            f"## [{title(package)}]({package}.md)",
            ", ".join(f"[`{name}`]({package}.md#headwise.{module}.{name})" for module, name in names),
        ]
    pages["api/index.md"] = "\n\n".join(index) + "\n"
    return pages


def settings_page() -> str:
    """Every setting with its default, as `headwise train --help` has them."""
    told = [
        "# Every setting",
        "What a recipe or the command line may set: `model.d_model` is `d_model:` under `model:` in a recipe "
        "and `--model.d_model 256` on the command line. `null` leaves a value out.",
    ]
    for section in sections():
        rows = [f"| `{each.path}` | `{as_yaml(each.default)}` | {each.help} |" for each in section.settings]
        if rows:
            told += [f"## {section.path or 'recipe'}", f"{section.title}."]
            told += ["\n".join(["| setting | default | meaning |", "| --- | --- | --- |", *rows])]
    return "\n\n".join(told) + "\n"


def as_yaml(value: Any) -> str:
    """A default as a recipe spells it."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(as_yaml, value))}]"
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return str(value)


# ---- links and code of the repository


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links out of docs/ to the pages made of their files; show the files that stand alone."""
    uri = page.file.src_uri
    if page.file.generated_by is not None and not uri.startswith("benchmarks/"):
        return markdown
    path = uri if uri.startswith("benchmarks/") else f"docs/{uri}"

    def shown(found: re.Match[str]) -> str:
        target = outside(path, found[2])
        if target is None or target.endswith(".md"):
            return found[0]
        if not (ROOT / target).is_file():
            return found[0]  # mkdocs says so
        text = part(target, found[3]) if found[3] else read(target)
        return f"{found[0]}\n{{: .hw-source }}\n\n{fenced(target, text)}"

    def led(found: re.Match[str]) -> str:
        target = outside(path, found[2])
        return found[0] if target is None else f"[{found[1]}]({relpath(uri_of(target), dirname(uri))})"

    markdown = apart(_ALONE, shown, markdown)
    return apart(_LINK, led, markdown)


def links(markdown: str) -> list[tuple[str, str]]:
    """The words and targets of all links that are no code."""
    return _LINK.findall(_FENCED.sub("", markdown))


def apart(pattern: re.Pattern[str], put: Any, markdown: str) -> str:
    """Replace a pattern everywhere but in fenced code."""
    told, end = "", 0
    for code in _FENCED.finditer(markdown):
        told += pattern.sub(put, markdown[end : code.start()]) + code[0]
        end = code.end()
    return told + pattern.sub(put, markdown[end:])


def outside(path: str, target: str) -> str | None:
    """The file of the repository that a page's link leads to, where it is none of docs/."""
    if re.match(r"[a-z]+:|#", target):
        return None
    led = normpath(join(dirname(path), target.partition("#")[0]))
    return None if led.startswith("docs/") else led


def uri_of(path: str) -> str:
    """Where the site has a file that is not in docs/."""
    return path if path.endswith(".md") else f"source/{path}.md"


def part(path: str, name: str) -> str:
    """A class, function or method of a module, as it is written. Errors: PluginError where there is none."""
    code = read(path)
    node: Any = ast.parse(code)
    for word in name.split("."):
        named = [each for each in node.body if getattr(each, "name", None) == word]
        if len(named) != 1:
            raise PluginError(
                f"{path} has no {name}: a page shows it; name what it has, or take the link out"
            )
        node = named[0]
    first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
    return textwrap.dedent("\n".join(code.splitlines()[first - 1 : node.end_lineno])) + "\n"


def fenced(path: str, text: str) -> str:
    """The text as a block of code of its file's kind."""
    kind = {".py": "python", ".yaml": "yaml", ".json": "json"}.get(Path(path).suffix, "text")
    return f"````{kind}\n{text.rstrip()}\n````"


def read(path: str) -> str:
    """A file of the repository."""
    return (ROOT / path).read_text(encoding="utf-8")


# ---- languages


def on_page_context(context: dict[str, Any], *, page: Page, config: MkDocsConfig, nav: Any) -> dict[str, Any]:
    """Set the language of the page and of what stands about it."""
    config.theme["language"] = "zh" if page.file.src_uri.startswith("zh/") else "en"
    return context
