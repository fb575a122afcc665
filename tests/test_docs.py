"""The documentation says what the code does, and its links lead somewhere."""

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import pytest
import typer.main
from google.protobuf.descriptor import FileDescriptor

import penstock
from docs.generate import PAGE, configuration_page, field_docs
from penstock.cli import COMMANDS, build
from penstock.config import PRESETS, Settings
from penstock.config.keys import known_keys
from penstock.core.settings import TopicRule
from penstock.doors.sidecar.answers import STATUSES
from penstock.errors import PenstockError
from penstock.wire.sidecar import nexusd
from penstock.wire.sidecar import penstock as own

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "reference"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LINK = re.compile(r"\[[^]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
PROTOCOLS = {"sidecar-api.md": nexusd.DESCRIPTOR, "penstock-v1.md": own.DESCRIPTOR}


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def all_errors() -> list[type[PenstockError]]:
    """Every error of every room; a room's errors exist once it is imported."""
    for module in walk_packages(penstock.__path__, "penstock."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    return sorted(set(errors_below(PenstockError)), key=repr)


def errors_below(kind: type[PenstockError]) -> Iterator[type[PenstockError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from errors_below(child)


def anchors_of(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def commands_of(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands_of(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def test_the_configuration_page_is_the_generated_one() -> None:
    assert text_of(PAGE) == configuration_page(), "run `make docs`"


def test_every_setting_says_what_it_means() -> None:
    named = {name.rpartition(".")[2] for name in known_keys()} | set(TopicRule.__struct_fields__)
    documented = set(field_docs(TopicRule)) | set(field_docs(Settings))
    for section in Settings.__struct_fields__:
        value = getattr(Settings(), section)
        if hasattr(value, "__struct_fields__"):
            documented |= set(field_docs(type(value)))
            assert set(value.__struct_fields__) <= set(field_docs(type(value))), f"section {section}"
    assert named <= documented


def test_the_configuration_page_names_every_key_and_preset() -> None:
    page = configuration_page()
    assert [name for name in [*known_keys(), *PRESETS] if f"`{name}`" not in page] == []


@pytest.mark.parametrize("error", all_errors())
def test_every_error_code_is_in_the_reference(error: type[PenstockError]) -> None:
    again = "yes" if error.retryable else "no"
    assert re.search(
        rf"^\| `{error.code}` \| .+ \| {again} \|$", text_of(REFERENCE / "errors.md"), re.MULTILINE
    )


def test_every_command_and_flag_is_in_the_reference() -> None:
    page = text_of(REFERENCE / "command-line.md")
    commands = dict(commands_of(typer.main.get_command(build(COMMANDS)), "penstock"))
    assert {name.split()[1] for name in commands} == set(COMMANDS)
    flags = {flag for command in commands.values() for option in command.params for flag in option.opts}
    wanted = {*commands, *(flag for flag in flags if flag.startswith("-"))}
    assert [word for word in sorted(wanted) if not re.search(rf"`{word}[ `]", page)] == []


def names_in(described: FileDescriptor) -> Iterator[str]:
    """Everything that a `.proto` file names: calls, messages, their fields, and values of enumerations."""
    for service in described.services_by_name.values():
        yield from (service.full_name, *service.methods_by_name)
    for name, message in described.message_types_by_name.items():
        yield from (name, *message.fields_by_name)
    for enumeration in described.enum_types_by_name.values():
        yield from enumeration.values_by_name


@pytest.mark.parametrize(("page", "described"), PROTOCOLS.items())
def test_every_name_of_a_grpc_service_is_in_its_reference(page: str, described: FileDescriptor) -> None:
    text = text_of(REFERENCE / page)
    assert [name for name in names_in(described) if f"`{name}`" not in text] == []


@pytest.mark.parametrize("error", STATUSES, ids=lambda error: error.code)
def test_every_status_of_an_error_is_in_the_reference(error: type[PenstockError]) -> None:
    row = rf"^\| `{STATUSES[error].name}` \| .*`{error.code}`"
    assert re.search(row, text_of(REFERENCE / "sidecar-api.md"), re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in LINK.findall(CODE.sub("", text_of(page))):
        address, _, anchor = link.partition("#")
        if "://" in address:
            continue
        target = (page.parent / address).resolve() if address else page
        if not target.exists() or (anchor and anchor not in anchors_of(target)):
            broken.append(link)
    assert broken == []


def test_every_page_can_be_reached_from_the_index() -> None:
    seen: set[Path] = set()
    waiting = [ROOT / "docs" / "index.md"]
    while waiting:
        page = waiting.pop()
        if page in seen or page.suffix != ".md" or not page.exists():
            continue
        seen.add(page)
        links = LINK.findall(CODE.sub("", text_of(page)))
        waiting += [(page.parent / link.partition("#")[0]).resolve() for link in links if "://" not in link]
    decisions = set(ROOT.glob("docs/adr/*.md"))  # their numbers are their index
    assert sorted(set(ROOT.glob("docs/**/*.md")) - decisions - seen) == []
