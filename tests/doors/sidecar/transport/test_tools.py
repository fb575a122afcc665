"""Clients that share nothing with ours: nghttp2's tools, and gRPC for JavaScript."""

import asyncio
import json
import re
import subprocess
from pathlib import Path
from shutil import which

import pytest

from tests.doors.sidecar.transport.serving import SAY, TIMEOUT_S, Serving
from tests.support.builds import npm_install

pytestmark = pytest.mark.system

GRPC_JS = "@grpc/grpc-js@1.14.1"
CALL = ("-H", "content-type: application/grpc", "-H", "te: trailers")


async def run(*words: str, timeout_s: float = 2 * TIMEOUT_S) -> str:
    """What a program prints, all of it."""
    process = await asyncio.create_subprocess_exec(
        *words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        printed, _ = await asyncio.wait_for(process.communicate(), timeout_s)
    except TimeoutError:
        process.kill()
        await process.wait()
        raise
    return printed.decode()


@pytest.fixture
def body(tmp_path: Path) -> Path:
    """A message of a few bytes, as it stands in a body."""
    file = tmp_path / "body"
    file.write_bytes(b"\0\0\0\0\x05hello")
    return file


@pytest.mark.skipif(which("h2load") is None, reason="needs h2load")
@pytest.mark.parametrize(
    "flags",
    [
        ("-c", "1", "-m", "16"),
        ("-c", "20", "-m", "50"),
        ("-c", "2", "-m", "10", "-w", "10", "-W", "10"),  # windows of 1 KB
        ("-c", "2", "-m", "10", "--header-table-size", "0", "--encoder-header-table-size", "0"),
    ],
)
async def test_h2load_loses_nothing(serving: Serving, body: Path, flags: tuple[str, ...]) -> None:
    address = f"http://127.0.0.1:{serving.port}{SAY}"
    printed = await run("h2load", "-n", "4000", *flags, "-d", str(body), *CALL, address)
    assert "4000 succeeded, 0 failed, 0 errored, 0 timeout" in printed, printed
    assert "4000 2xx, 0 3xx, 0 4xx, 0 5xx" in printed, printed


@pytest.mark.skipif(which("nghttp") is None, reason="needs nghttp")
async def test_nghttp_gets_an_answer_with_trailers(serving: Serving, body: Path) -> None:
    address = f"http://127.0.0.1:{serving.port}{SAY}"
    printed = await run("nghttp", "-nv", "-d", str(body), *CALL, address)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", printed)
    assert ":status: 200" in plain, plain
    assert "grpc-status: 0" in plain, plain
    assert "error_code=NO_ERROR" in plain, plain


@pytest.mark.skipif(which("nghttp") is None, reason="needs nghttp")
async def test_nghttp_is_told_that_a_page_is_not_here(serving: Serving) -> None:
    printed = await run("nghttp", "-nv", f"http://127.0.0.1:{serving.port}/")
    assert "405" in printed, printed


SCRIPT = """
const grpc = require("@grpc/grpc-js");
const [address] = process.argv.slice(2);
const same = (value) => value;
const method = (name, requestStream, responseStream) => ({
  path: "/test.Echo/" + name, requestStream, responseStream,
  requestSerialize: same, requestDeserialize: same, responseSerialize: same, responseDeserialize: same,
});
const Echo = grpc.makeGenericClientConstructor({
  Say: method("Say", false, false), Wait: method("Wait", false, false),
  Nothing: method("Nothing", false, false),
  Count: method("Count", false, true), Chat: method("Chat", true, true), Sum: method("Sum", true, false),
}, "Echo");
const client = new Echo(address, grpc.credentials.createInsecure());
const ask = (name, text, options) => new Promise((resolve) =>
  client[name](Buffer.from(text), options || {}, (error, answer) => resolve([error, answer])));
const gather = (call) => new Promise((resolve) => {
  const messages = [];
  call.on("data", (message) => messages.push(message));
  call.on("error", (error) => resolve([error.code, messages.length]));
  call.on("end", () => resolve([0, messages.length]));
});
(async () => {
  const told = {};
  const answers = await Promise.all([...Array(500).keys()].map((number) => ask("Say", String(number))));
  told.said = answers.every(([error, answer], number) => !error && answer.toString() === String(number));
  told.large = (await ask("Say", "x".repeat(1000000)))[1].length;
  told.nothing = (await ask("Nothing", ""))[0].code;
  told.deadline = (await ask("Wait", "", { deadline: Date.now() + 200 }))[0].code;
  told.counted = await gather(client.Count(Buffer.from("2000 100")));
  const chat = client.Chat();
  const talked = gather(chat);
  for (let number = 0; number < 100; number++) chat.write(Buffer.from(String(number)));
  chat.end();
  told.talked = await talked;
  told.sum = await new Promise((resolve) => {
    const call = client.Sum((error, answer) => resolve(error ? error.code : answer.toString()));
    for (let number = 0; number < 100; number++) call.write(Buffer.from("xx"));
    call.end();
  });
  const cancelled = client.Count(Buffer.from("100000 1000"));
  const rest = gather(cancelled);
  cancelled.once("data", () => cancelled.cancel());
  told.cancelled = (await rest)[0];
  client.close();
  console.log(JSON.stringify(told));
})();
"""


async def test_grpc_for_javascript_finds_what_it_expects(serving: Serving, tmp_path: Path) -> None:
    script = tmp_path / "echo.js"
    script.write_text(SCRIPT, encoding="utf-8")
    (tmp_path / "node_modules").symlink_to(npm_install(GRPC_JS) / "node_modules")
    told = json.loads(await run("node", str(script), f"127.0.0.1:{serving.port}"))
    assert told == {
        "said": True,
        "large": 1_000_000,
        "nothing": 12,
        "deadline": 4,
        "counted": [0, 2000],
        "talked": [0, 100],
        "sum": "100 200",
        "cancelled": 1,
    }
