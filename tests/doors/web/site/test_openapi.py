"""What the API says of itself is true, whatever is asked of it."""

import os
import random
import re
from datetime import UTC, datetime
from html import escape, unescape
from pathlib import Path
from typing import Any

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from penstock import __version__
from tests.support.servers import StartServer

REFERENCE = Path(__file__).parents[4] / "docs" / "reference" / "http-api.md"
EXAMPLES = {1: 4, 10: 100}
"""Good requests that are made of each operation, and as many bad ones, by scale."""
STRICT = (
    "/api/v1/topics",
    "/api/v1/messages",
    "/api/v1/retained",
    "/api/v1/clients",
    "/api/v1/slow",
    "/api/v1/why",
)
"""Where nothing is refused that the description allows; elsewhere there are rules that it cannot tell."""
STARTS = ("after", "after_sequence", "from", "last")
"""Of these a request has one at most, which the description says only in words."""
METHODS = {"get", "post", "put", "delete"}

_place = {"cursor": ""}  # of the server that is asked
_texts = st.text(st.characters(exclude_characters="/+#", exclude_categories=["Cs", "Cc"]), max_size=8)
_levels = st.lists(_texts)
topics = _levels.map("/".join).filter(bool)
paths = topics.filter(lambda topic: not {".", ".."} & {*topic.split("/")})
filters = st.one_of(
    topics, topics.map(lambda topic: f"{topic}/#"), st.sampled_from(["#", "a/+/b", "+", "$SYS/#"])
)
times = st.datetimes(datetime(1970, 1, 2), datetime(2200, 1, 1), timezones=st.just(UTC))
starts = st.one_of(st.sampled_from(["earliest", "latest"]), times.map(datetime.isoformat))

schemathesis.openapi.format("topic", topics)
schemathesis.openapi.format("topic-path", paths)
schemathesis.openapi.format("topic-filter", filters.filter(lambda filter: not filter.startswith("$share/")))
schemathesis.openapi.format("history-time", starts)
schemathesis.openapi.format("client-id", paths)
schemathesis.openapi.format("cursor", st.builds(lambda: _place["cursor"]))


@schemathesis.serializer("application/x-ndjson", "application/vnd.apache.arrow.stream")
def as_it_is(_: object, value: object) -> bytes:
    """Bodies that are no JSON: whatever comes."""
    return value if isinstance(value, bytes) else str(value).encode()


@pytest.fixture(scope="module")
def address(start_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A server that has everything, with a message in it."""
    running = start_server({"http": {"port": 0}, "data_dir": str(tmp_path_factory.mktemp("api") / "data")})
    address = f"http://127.0.0.1:{running.port_of('http')}"
    receipt = httpx.post(f"{address}/api/v1/publish", json={"topic": "a", "data": 1, "retain": True}).json()
    _place["cursor"] = receipt["cursor"]
    return address


@pytest.fixture(scope="module")
def document(address: str) -> dict[str, Any]:
    described: dict[str, Any] = httpx.get(f"{address}/openapi.json").json()
    return described


def operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if method in METHODS
    ]


@pytest.mark.timeout(600)
def test_every_operation_does_what_its_description_says(
    address: str, scale: int, subtests: pytest.Subtests
) -> None:
    print(f"SEED={(dice := int(os.environ.get('SEED', random.randrange(10**9))))}")
    schema = schemathesis.openapi.from_url(f"{address}/openapi.json")
    schema.config.checks.negative_data_rejection.expected_statuses += ["414"]  # far too many of something
    with requests.Session() as session:
        for found in schema.get_all_operations():
            assert isinstance(found, Ok)
            operation = found.ok()
            for mode in GenerationMode:
                with subtests.test(operation.label, mode=mode.name):
                    ask(operation, mode, session, dice, EXAMPLES[scale])


def ask(operation: Any, mode: GenerationMode, session: requests.Session, dice: int, examples: int) -> None:
    """Make requests of one operation, and check all that can be checked of every answer."""
    excluded = [] if operation.path.startswith(STRICT) else [positive_data_acceptance]
    if operation.path == "/api/v1/publish":
        excluded.append(negative_data_rejection)  # with a topic in the query any body is a payload

    @seed(dice)
    @settings(
        max_examples=examples,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(operation.as_strategy(generation_mode=mode))
    def check(case: Any) -> None:
        if mode is GenerationMode.POSITIVE:
            for name in [each for each in STARTS if each in case.query][1:]:
                del case.query[name]
            if operation.path == "/api/v1/retained" and "topic" in case.query:
                case.query = {"topic": case.query["topic"]}  # it is asked for alone
        case.call_and_validate(session=session, excluded_checks=excluded)

    try:
        check()
    except Unsatisfiable:
        assert mode is GenerationMode.NEGATIVE  # there is nothing that could be wrong with it


def test_every_operation_has_words_a_tag_and_its_errors(document: dict[str, Any]) -> None:
    tags = {tag["name"] for tag in document["tags"]}
    assert document["openapi"].startswith("3.1")
    assert document["info"]["version"] == __version__
    for method, path, operation in operations(document):
        place = f"{method} {path}"
        assert operation["summary"] and not operation["summary"].endswith("."), place
        assert set(operation["tags"]) <= tags, place
        assert {"400", "500", "503"} <= set(operation["responses"]), place
        is_open = path in ("/health", "/ready", "/livez")
        assert ({"401", "403", "429"} & set(operation["responses"]) == set()) is is_open, place
        needs_none = is_open or path in ("/api/v1/login", "/api/v1/logout")
        assert (operation.get("security") == []) is needs_none, place
        assert all("content" in each for status, each in operation["responses"].items() if status != "204")
        assert ("422" in operation["responses"]) is (place == "post /topics"), place
        for parameter in operation.get("parameters", ()):
            assert "null" not in str(parameter["schema"]), f"{place}: {parameter['name']}"
            assert parameter["description"], f"{place}: {parameter['name']}"
            if parameter.get("required"):
                assert parameter["schema"]["examples"], f"{place}: {parameter['name']}"


def kinds(operation: dict[str, Any], status: str) -> set[str]:
    return set(operation["responses"][status]["content"])


def test_errors_are_described_as_they_are(document: dict[str, Any]) -> None:
    for method, path, operation in operations(document):
        for status in set(operation["responses"]) & {"400", "401", "404", "500"}:
            described = kinds(operation, status)
            if path.startswith("/api/v1"):
                assert described == {"application/problem+json"}, f"{method} {path}"
            elif path == "/publish" and status != "401":
                assert described == {"text/plain", "application/json"}
            else:
                assert described == {"application/json"}, f"{method} {path}"
    schema = document["paths"]["/cluster/status"]["get"]["responses"]["401"]["content"]["application/json"]
    assert schema == {"schema": {"$ref": "#/components/schemas/Detail"}}
    assert list(document["components"]["schemas"]["Detail"]["properties"]) == ["detail"]


def test_a_retained_value_is_described_as_bytes_of_any_kind(document: dict[str, Any]) -> None:
    value = document["paths"]["/api/v1/retained/{topic}"]["get"]["responses"]["200"]
    anything = {"*/*": {"schema": {"type": "string", "format": "binary"}}, "application/json": {"schema": {}}}
    assert value["content"] == anything


def test_every_schema_that_is_referred_to_is_there(document: dict[str, Any]) -> None:
    referred = set(re.findall(r"#/components/schemas/([\w.-]+)", str(document)))
    assert referred <= set(document["components"]["schemas"])
    assert "Problem" in referred


def test_every_call_of_the_index_is_described(address: str, document: dict[str, Any]) -> None:
    index = httpx.get(f"{address}/api/v1").json()
    assert set(index["interfaces"].values()) <= set(document["paths"])


def test_the_root_names_every_interface_and_says_hello(address: str) -> None:
    root = httpx.get(f"{address}/").json()
    assert (root["name"], root["version"]) == ("penstock", __version__)
    assert root["hello"]
    for path in set(root["interfaces"].values()) - {"/mqtt", "/ws", "/api/v1/streams", "/api/v1/events"}:
        assert httpx.get(address + path).status_code == 200, path


def test_the_page_for_people_has_every_operation_and_loads_nothing(
    address: str, document: dict[str, Any]
) -> None:
    answer = httpx.get(f"{address}/docs")
    assert answer.headers["content-type"].startswith("text/html")
    assert answer.headers["content-security-policy"].startswith("default-src 'none'; style-src")
    assert "prefers-color-scheme: dark" in answer.text
    assert "script-src" not in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    links = re.findall(r'href="#([^"]+)"', answer.text)
    assert sorted(links) == sorted(re.findall(r'<h3 id="([^"]+)"', answer.text))
    assert len(set(links)) == len(operations(document))
    for method, path, operation in operations(document):
        assert f"<code>{method.upper()} {path}</code>" in answer.text
        assert escape(operation["summary"]) in answer.text
    assert re.findall(r"<script|<link|src=|@import|url\(|href=\"(?!openapi\.json|#)", answer.text) == []


def test_what_the_page_shows_can_be_asked(address: str) -> None:
    calls = re.findall(r"<pre>curl (\S+)</pre>", httpx.get(f"{address}/docs").text)
    assert len(calls) > 15
    for call in calls:
        answer = httpx.get(unescape(call).strip("'"))
        assert answer.status_code == 200 or answer.json()["code"].startswith("unknown-"), call


def test_the_page_is_found_by_either_name(address: str) -> None:
    pages = [httpx.get(f"{address}{path}") for path in ("/docs", "/redoc")]
    assert pages[0].text == pages[1].text
    assert pages[0].headers["content-security-policy"] == pages[1].headers["content-security-policy"]


def test_the_reference_has_every_operation_and_its_parameters(document: dict[str, Any]) -> None:
    page = REFERENCE.read_text(encoding="utf-8")
    for method, path, operation in operations(document):
        assert f"`{method.upper()} {path}`" in page, path
        for parameter in operation.get("parameters", ()):
            if parameter["in"] == "query":
                assert re.search(rf"[`?&]{parameter['name']}[`=]", page), f"{path}: {parameter['name']}"


@pytest.mark.parametrize("path", ["/api/v1/nothing", "/api/v1/topics/", "/api/v1/topics/a", "/api/v1//"])
def test_a_path_that_there_is_not_is_a_problem(address: str, path: str) -> None:
    answer = httpx.get(address + path)
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert (problem["status"], problem["code"], problem["type"]) == (404, "not-found", "about:blank")
    assert "/docs" in problem["detail"]


def test_the_index_is_the_same_with_a_slash(address: str) -> None:
    assert httpx.get(f"{address}/api/v1/").json() == httpx.get(f"{address}/api/v1").json()


def test_elsewhere_errors_are_what_those_callers_know(address: str) -> None:
    answer = httpx.get(f"{address}/nothing")
    assert (answer.status_code, answer.json()) == (404, {"detail": "Not Found"})


@pytest.mark.parametrize("path", ["/api/v1/topics", "/api/v1/topics/a/messages", "/api/v1", "/api/v1/why"])
def test_a_method_that_is_not_offered_is_a_problem_that_names_those_that_are(address: str, path: str) -> None:
    answer = httpx.put(address + path)
    assert (answer.status_code, answer.json()["code"]) == (405, "method-not-allowed")
    assert "GET" in answer.headers["allow"]
