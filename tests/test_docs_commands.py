"""The docs do not lie: cheap commands run, dear ones parse, links lead somewhere, code runs."""

import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import click
import pytest

from xla_cost.cli import app as cli

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\(([^)\s]+)\)|!\[[^\]\n]*\]\(([^)\s]+)\)")
MAKE = re.compile(r"(?:^\s*(?:\$ )?|`)make ([a-z][a-z ]*[a-z])(?=`|\s*#|\s*$)", re.MULTILINE)
INLINE = re.compile(r"(?:`|^    \$? ?)(?:\.venv/bin/)?xla-cost ([A-Za-z]+)([^`\n]*)", re.MULTILINE)
#: Commands that answer within a second or so whatever they are given.
ALWAYS_CHEAP = {"machines", "models", "plans", "explain", "report", "inspect"}
#: Commands that are cheap on the model that compiles in seconds.
CHEAP_ON_TINY = {"estimate", "search", "sweep"}


@dataclass(frozen=True)
class Command:
    """One `xla-cost ..` line of a page."""

    page: Path
    words: tuple[str, ...]  # without the program

    @property
    def is_cheap(self) -> bool:
        """Whether it is run, not only parsed."""
        words = self.words
        if not words or words[0].startswith("-") or words[0] in ALWAYS_CHEAP:
            return True
        if words[0] in ("estimate", "check"):
            return words[1] == "tiny" or words[1].endswith("config.json") or is_own(words[1])
        return words[0] in CHEAP_ON_TINY and words[1] in ("tiny", "sweep.toml")


def is_own(target: str) -> bool:
    """Whether a target is a file that a page itself spells out: small by intent."""
    place = target.partition(":")[0]
    return ":" in target and any(
        name in (place, f"{place}.py") for page in PAGES for name, _ in files(page)
    )


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    if page.is_file():
        yield from BLOCK.findall(page.read_text(encoding="utf-8"))


def files(page: Path) -> Iterator[tuple[str, str]]:
    """(name, text) of the blocks whose first line is `# FILE: NAME`."""
    for language, text in blocks(page):
        first, _, rest = text.partition("\n")
        if first.startswith("# FILE: "):
            yield first.removeprefix("# FILE: "), rest if language == "json" else text


def commands(page: Path) -> Iterator[Command]:
    for language, text in blocks(page):
        if language not in ("console", "sh", "bash", "shell", "text"):
            continue
        for line in text.replace("\\\n", " ").splitlines():
            if language in ("console", "text") and not line.startswith("$ "):
                continue
            words = shlex.split(line.removeprefix("$ "), comments=True)
            if words and words[0].rpartition("/")[2] == "xla-cost":
                yield Command(page, tuple(words[1:]))


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


WITH_COMMANDS = [page for page in PAGES if any(commands(page))]


def parse(words: tuple[str, ...]) -> None:
    """Every name and option is known and every value is of its type; nothing runs."""
    name, *rest = words
    if name.startswith("-"):
        assert name in ("--help", "-h", "--version")
        return
    command = cli.app.get_command(click.Context(cli.app), name)
    assert command is not None, f"{name}: no such command"
    if "--help" in rest:
        return
    command.make_context(name, list(rest))


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=name_of)
def test_commands_parse(page: Path) -> None:
    for command in commands(page):
        try:
            parse(command.words)
        except Exception as error:  # typer carries its own copy of click's errors
            told = error.format_message() if hasattr(error, "format_message") else repr(error)
            pytest.fail(f"{name_of(page)}: xla-cost {shlex.join(command.words)}: {told}")


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=name_of)
def test_cheap_commands_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """In page order in one folder, so that a command may use what an earlier one wrote."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XLA_COST_CACHE", str(tmp_path / "cache"))
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    shutil.copy(ROOT / "tests" / "hlo_modules" / "oracle" / "collectives.hlo", "dump.hlo")
    for name, text in files(page):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    promised: set[str] = set()  # what the commands that are only parsed would have written
    for command in commands(page):
        words = command.words
        if command.is_cheap and not promised & set(words):
            code = cli.run(list(words))
            out, err = capfd.readouterr()
            assert code == 0, f"{name_of(page)}: xla-cost {shlex.join(words)}: {err}{out}"
        else:
            written = ("--json", "--out", "--trace", "--lock")
            promised |= {b for a, b in pairwise(words) if a in written}


@pytest.mark.parametrize("page", [page for page in PAGES if page.is_file()], ids=name_of)
def test_commands_in_running_text_are_real(page: Path) -> None:
    """`xla-cost NAME ..`: the command is there, and so is every option that is named."""
    for match in INLINE.finditer(page.read_text(encoding="utf-8")):
        name, options = match[1], re.findall(r"(?<![\w-])--[a-z][a-z-]*", match[2])
        if name.isupper():
            continue
        command = cli.app.get_command(click.Context(cli.app), name)
        assert command is not None, f"{name_of(page)}: {match[0]}: no such command"
        known = {"--help", *(option for p in command.params for option in p.opts)}
        assert set(options) <= known, f"{name_of(page)}: {match[0]}: no such option"


RUNNABLE = [ROOT / "docs" / "tutorial.md", ROOT / "docs" / "extend.md"]


@pytest.mark.parametrize("page", RUNNABLE, ids=name_of)
def test_python_of_the_guides_runs(page: Path, capfd: pytest.CaptureFixture[str]) -> None:
    count = 0
    for language, text in blocks(page):
        if language == "python" and not text.startswith("# FILE:"):
            exec(compile(text, name_of(page), "exec"), {"__name__": "page"})
            count += 1
    assert count > 0
    assert capfd.readouterr().out.strip()


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    asked = {
        (name_of(page), word)
        for page in PAGES
        if page.is_file()
        for words in MAKE.findall(page.read_text(encoding="utf-8"))
        for word in words.split()
    }
    assert len(asked) >= 4
    assert {(page, word) for page, word in asked if word not in targets} == set()


@pytest.mark.parametrize("page", [page for page in PAGES if page.is_file()], ids=name_of)
def test_relative_links_lead_somewhere(page: Path) -> None:
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    lost = []
    for link in (first or second for first, second in LINK.findall(text)):
        place, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link):
            continue
        target = page.parent / place if place else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            lost.append(link)
    assert lost == []


def anchors(page: Path) -> set[str]:
    """Anchors of the headings of a page, as both the site and the forge make them."""
    headings = re.findall(r"^#+ +(.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings
    }


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    named = set(re.findall(r"([\w/-]+\.md)$", navigation, re.MULTILINE))
    there = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    assert there - named == set()
