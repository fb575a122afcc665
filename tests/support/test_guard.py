"""Guard of a test run: nothing that tests have started outlives the run."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import guard
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(not guard.IS_SUPPORTED, reason="needs Linux")

RUN = """
import runpy, subprocess, sys

guard = runpy.run_path(sys.argv[1])["Guard"]()
words = ["sh", "-c", "sleep 600 & echo $!; wait"]
child = subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True)
print(child.pid, int(child.stdout.readline()), flush=True)
sys.stdin.readline()
guard.close()
print("over", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "ended"])
async def test_processes_of_a_run_end_with_it_and_the_run_itself_is_spared(is_killed: bool) -> None:
    words = [sys.executable, "-c", RUN, str(guard.__file__)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdin is not None
        assert run.stdout is not None
        pids = [int(pid) for pid in run.stdout.readline().split()]
        assert all(is_alive(pid) for pid in pids)
        if is_killed:
            run.kill()
        else:
            run.stdin.write("\n")
            run.stdin.flush()
            assert run.stdout.readline() == "over\n"
            assert run.poll() is None
        await until(lambda: not any(is_alive(pid) for pid in pids), "a process outlived its run")


def is_alive(pid: int) -> bool:
    """The process runs; a zombie does not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except FileNotFoundError:
        return False
    return status.rsplit(")", 1)[1].split()[0] != "Z"
