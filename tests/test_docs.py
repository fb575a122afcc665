"""The documentation says what the code does, and its links lead somewhere."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.descriptor import FileDescriptor

from docs.generating.commands import commands, summary_of
from docs.generating.errors import all_errors
from docs.generating.http import operations
from docs.generating.metrics import scraped_name
from docs.generating.pages import BLOCK, WHOLE, block, fill, generated_pages, text_for
from docs.generating.running import offer
from docs.generating.settings import configuration_page
from penstock.cli import COMMANDS
from penstock.client import Client, HttpClient, MqttClient, SyncClient
from penstock.config import PRESETS, Settings
from penstock.config.describe import field_docs
from penstock.config.keys import known_keys
from penstock.core.settings import TopicRule
from penstock.doors.sidecar.transport.status import STATUSES
from penstock.errors import InvalidRequest, PenstockError
from penstock.wire.sidecar.messages import nexusd
from penstock.wire.sidecar.messages import penstock as own

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"
LISTENER = ROOT / "src" / "penstock" / "net" / "http"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("bench/*.md"), *DOCS.rglob("*.md")])
LINK = re.compile(r"\[[^]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
PROTOCOLS = {"sidecar-api.md": nexusd.DESCRIPTOR, "penstock-v1.md": own.DESCRIPTOR}


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def anchors_of(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", generated_pages(), ids=lambda page: page.stem)
def test_what_is_generated_is_what_the_code_says_now(page: Path) -> None:
    assert text_of(page) == text_for(page), "run `make docs`"


def test_what_is_around_a_generated_block_stays_as_it_was() -> None:
    page = "before\n<!-- generated: decisions -->\nold\n<!-- end generated -->\nbehind\n"
    begin, rest = fill(page).split("<!-- generated: decisions -->\n")
    made, end = rest.split("<!-- end generated -->\n")
    assert (begin, end) == ("before\n", "behind\n")
    assert made.strip() == block("decisions").strip()


def test_a_block_of_a_name_that_nobody_knows_is_refused() -> None:
    with pytest.raises(KeyError):
        fill("<!-- generated: weather -->\n<!-- end generated -->\n")


def test_every_marker_of_a_generated_block_has_its_end() -> None:
    for page in DOCS.rglob("*.md"):
        assert text_of(page).count("<!-- generated: ") == len(BLOCK.findall(text_of(page))), page


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
    page = text_of(REFERENCE / "errors.md")
    assert re.search(rf"^\| `{error.code}` \| .+ \| {again} \|$", page, re.MULTILINE)
    assert error.__doc__, "its docstring is its meaning"


def test_every_refusal_of_the_http_listener_is_in_the_reference() -> None:
    page = text_of(REFERENCE / "http-api.md")
    refused = {status_and_code for module in LISTENER.glob("*.py") for status_and_code in refusals_in(module)}
    assert (421, "misdirected") in refused
    for status, code in refused:
        rows = [row for row in page.splitlines() if re.match(rf"\| [\d, ]*\b{status}\b", row)]
        assert any(f"`{code}`" in row for row in rows), f"{status} {code}"


def refusals_in(module: Path) -> Iterator[tuple[int, str]]:
    """The status and the code of every refusal in a module's own words; a status below 400 is none."""
    for call in ast.walk(ast.parse(text_of(module))):
        match call:
            case ast.Call(ast.Name("Refusal"), [ast.Constant(int(status)), *_], words) if status >= 400:
                told = {word.arg: word.value for word in words}.get("code", ast.Constant(InvalidRequest.code))
                if isinstance(told, ast.Constant):  # others are codes of errors, which have their own page
                    assert isinstance(told.value, str), f"the code of a refusal is {told.value!r}"
                    yield status, told.value


def test_every_metric_is_in_the_reference_and_says_what_it_means() -> None:
    page = text_of(REFERENCE / "metrics.md")
    for metric in offer().metrics:
        assert f"`{scraped_name(metric)}`" in page
        assert metric.documentation, metric.name


def test_every_command_and_flag_is_in_the_reference() -> None:
    page = text_of(REFERENCE / "command-line.md")
    known = commands()
    assert {name.split()[0] for name in known} == set(COMMANDS)
    flags = {flag for command in known.values() for option in command.params for flag in option.opts}
    wanted = {*(f"penstock {name}" for name in known), *(flag for flag in flags if flag.startswith("-"))}
    assert [word for word in sorted(wanted) if not re.search(rf"`{word}[ `]", page)] == []


def test_every_command_has_its_block_in_the_reference() -> None:
    page = text_of(REFERENCE / "command-line.md")
    assert [name for name in commands() if f"<!-- generated: command {name} -->" not in page] == []


@pytest.mark.parametrize("name", commands())
def test_a_command_and_its_flags_say_what_they_are_for(name: str) -> None:
    command = commands()[name]
    assert summary_of(command)
    assert [each.name for each in command.params if not each.help and not each.hidden] == []


def test_every_call_says_what_it_is_for() -> None:
    document = offer().openapi
    tags = [tag["name"] for tag in document["tags"]]
    told = [(path, method) for tag in tags for path, method, _ in operations(tag)]
    methods = [(path, method.upper()) for path, known in document["paths"].items() for method in known]
    assert sorted(told) == sorted(methods)
    assert all(operation["summary"] for tag in tags for *_, operation in operations(tag))


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
    explained = BLOCK.sub("", text_of(REFERENCE / page))  # being listed is not being explained
    assert [name for name in names_in(described) if f"`{name}`" not in explained] == []


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
    waiting = [DOCS / "index.md"]
    while waiting:
        page = waiting.pop()
        if page in seen or page.suffix != ".md" or not page.exists():
            continue
        seen.add(page)
        links = LINK.findall(CODE.sub("", text_of(page)))
        waiting += [(page.parent / link.partition("#")[0]).resolve() for link in links if "://" not in link]
    assert sorted(set(DOCS.rglob("*.md")) - seen) == []


def test_pages_that_are_generated_as_a_whole_say_so() -> None:
    for name in WHOLE:
        assert "do not edit it here" in text_of(DOCS / name)


@pytest.mark.parametrize("client", [Client, SyncClient, HttpClient, MqttClient])
def test_every_method_of_a_client_is_in_the_reference(client: type) -> None:
    page = text_of(REFERENCE / "client.md")
    methods = [name for name in dir(client) if not name.startswith("_") and callable(getattr(client, name))]
    assert [name for name in methods if not re.search(rf"\b{name}\(|`{name}`", page)] == []
