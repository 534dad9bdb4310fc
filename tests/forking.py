"""Programs in processes of their own, without importing weft anew for each of them.

Importing takes longer than many programs of the tests do. So one process imports weft, and a fork
of it runs each program: it is killed, or ends by a signal or an exit code, as one of its own would.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

SERVER = """
import contextlib, json, os, select, signal, sys, traceback
for name in json.loads(sys.argv[1]):
    __import__(name)


def run(code, arguments, folder, out, err):
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    if folder:
        os.chdir(folder)
    sys.argv = ["-c", *arguments]
    try:
        exec(compile(code, "<program>", "exec"), {"__name__": "__main__"})
        status = 0
    except SystemExit as end:
        status = end.code or 0
        if not isinstance(status, int):
            print(status, file=sys.stderr)
            status = 1
    except BaseException as error:
        traceback.print_exc()
        status = 1
        if isinstance(error, KeyboardInterrupt):
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    os._exit(status)


def read_all(ends):
    said = {end: b"" for end in ends}
    while ends:
        for end in select.select(ends, [], [])[0]:
            read = os.read(end, 65536)
            said[end] += read
            if not read:
                ends = [e for e in ends if e != end]
                os.close(end)
    return [text.decode() for text in said.values()]


for line in sys.stdin:
    code, arguments, folder, err_path = json.loads(line)
    (out, to_out), (err, to_err) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        to_err = os.open(err_path, os.O_WRONLY) if err_path else to_err
        run(code, arguments, folder, to_out, to_err)
    os.close(to_out)
    os.close(to_err)
    told = read_all([out, err])
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(json.dumps([status, *told]), flush=True)
"""


class Forks:
    """A process that has imported some modules, and runs programs in forks of itself."""

    def __init__(self, *modules: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER, json.dumps(modules)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    def __enter__(self) -> Forks:
        return self

    def __exit__(self, *exc: object) -> None:
        self.process.communicate()

    def run(
        self, code: str, *arguments: Any, cwd: Any = None, err: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a program with arguments, in a folder; ``err`` is a file for its errors."""
        assert self.process.stdin is not None and self.process.stdout is not None
        asked = [code, list(map(str, arguments)), None if cwd is None else str(cwd), err]
        print(json.dumps(asked), file=self.process.stdin, flush=True)
        return subprocess.CompletedProcess([], *json.loads(self.process.stdout.readline()))
