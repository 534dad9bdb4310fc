"""The server of the graph's page: who is answered, who is refused, and how it ends."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

import browser as browsers
import weft
from graph_documents import transformer_step
from weft.graph.page import server
from weft.graph.page.server import HOST, LARGEST_REQUEST, MOST_CONNECTIONS
from weft.graph.serving import Served, serve


class Fake:
    """A source that only remembers what it was asked to do."""

    def __init__(self) -> None:
        self.count = 1
        self.requests: list[dict[str, Any]] = []
        self.steps = [transformer_step(0, layers=1)]

    def document(self) -> dict[str, Any]:
        return {"weft_graph": 1, "title": "fake", "steps": list(self.steps)}

    def version(self) -> int:
        return self.count

    def edit(self, request: dict[str, Any]) -> dict[str, Any]:
        self.requests.append(request)
        if request.get("node") == "broken":
            raise RuntimeError("shapes do not fit")
        return {"ok": True}


@pytest.fixture
def served() -> Iterator[Served]:
    with serve(Fake()) as server:
        yield server


def ask(
    served: Served,
    path: str,
    method: str = "GET",
    body: Any = None,
    token: str | None = "right",
    **headers: str,
) -> tuple[int, Any, dict[str, str]]:
    """One request as a client of our own would make it."""
    parts = urlsplit(served.url)
    right = parse_qs(parts.query)["token"][0]
    if token is not None:
        path += ("&" if "?" in path else "?") + "token=" + (right if token == "right" else token)
    connection = http.client.HTTPConnection(HOST, parts.port, timeout=10)
    try:
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        if body is not None:
            headers.setdefault("Content_Type", "application/json")
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, given)
        answer = connection.getresponse()
        data = answer.read()
        said = json.loads(data) if "json" in answer.headers["Content-Type"] else data.decode()
        return answer.status, said, dict(answer.headers)
    finally:
        connection.close()


def post(served: Served, body: Any, **more: Any) -> tuple[int, Any, dict[str, str]]:
    return ask(served, "/edit", "POST", body, **more)


# --- what is answered ---


def test_page_holds_the_document(served: Served) -> None:
    status, text, headers = ask(served, "/")
    assert status == 200
    assert "<title>fake</title>" in text
    assert headers["Cache-Control"] == "no-store"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["X-Frame-Options"] == "DENY"


def test_document_since(served: Served) -> None:
    status, said, _ = ask(served, "/document")
    assert status == 200
    assert said["version"] == 1
    assert said["document"]["title"] == "fake"
    assert [step["step"] for step in said["steps"]] == [0]
    assert said["kept"] == []
    assert ask(served, "/document?since=1")[1] == {"version": 1}


def test_only_new_steps_are_sent(served: Served) -> None:
    served.source.steps.append(transformer_step(1, layers=1))
    served.source.count = 2
    said = ask(served, "/document?since=1&after=0")[1]
    assert said["kept"] == [0]
    assert [step["step"] for step in said["steps"]] == [1]
    del served.source.steps[0]
    served.source.count = 3
    said = ask(served, "/document?since=1&after=0")[1]
    assert (said["kept"], [step["step"] for step in said["steps"]]) == ([], [1])


def test_numbers_that_json_lacks() -> None:
    source = Fake()
    source.steps[0]["nodes"][0]["stats"]["max"] = float("inf")
    source.steps[0]["nodes"][0]["grad_norm"] = float("nan")
    with serve(source) as served:
        node = ask(served, "/document")[1]["steps"][0]["nodes"][0]
    assert (node["stats"]["max"], node["grad_norm"]) == ("Infinity", "NaN")


def test_events_tell_of_news(served: Served) -> None:
    parts = urlsplit(served.url)
    with socket.create_connection((HOST, parts.port), timeout=10) as stream:
        stream.sendall(
            f"GET /events?{parts.query} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode()
        )
        heard = b""
        while b"data: 1\n\n" not in heard:
            heard += stream.recv(4096)
        served.source.count = 7
        while b"data: 7\n\n" not in heard:
            more = stream.recv(4096)
            assert more
            heard += more
    assert b"text/event-stream" in heard


def test_edits_reach_the_source(served: Served) -> None:
    request = {"edit": "replace", "node": "blocks.0.mlp.gelu", "op": "relu"}
    assert post(served, request)[:2] == (200, {"ok": True})
    assert post(served, {"edit": "pause"})[1] == {"ok": True}
    assert served.source.requests == [request, {"edit": "pause"}]


def test_a_failing_edit_is_told(served: Served) -> None:
    status, said, _ = post(served, {"edit": "remove", "node": "broken"})
    assert (status, said) == (200, {"error": "RuntimeError: shapes do not fit"})


# --- what is refused ---


@pytest.mark.parametrize("path", ["/", "/document", "/events", "/nothing"])
@pytest.mark.parametrize("token", [None, "wrong", "", "\u00e9".encode().hex()])
def test_wrong_token(served: Served, path: str, token: str | None) -> None:
    status, said, _ = ask(served, path, token=token)
    assert (status, said) == (403, {"error": "wrong token"})


def test_two_tokens_are_none(served: Served) -> None:
    assert ask(served, "/?token=x")[0] == 403


def test_wrong_token_does_not_edit(served: Served) -> None:
    assert post(served, {"edit": "pause"}, token="wrong")[0] == 403
    assert served.source.requests == []


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://127.0.0.1"]
)
def test_foreign_origin(served: Served, origin: str) -> None:
    assert ask(served, "/document", Origin=origin)[0] == 403
    assert post(served, {"edit": "pause"}, Origin=origin)[0] == 403
    assert served.source.requests == []


def test_own_origin(served: Served) -> None:
    port = urlsplit(served.url).port
    for name in (HOST, "localhost"):
        assert post(served, {"edit": "pause"}, Origin=f"http://{name}:{port}")[0] == 200


def test_requests_of_other_sites(served: Served) -> None:
    assert ask(served, "/document", Sec_Fetch_Site="cross-site")[0] == 403
    assert ask(served, "/document", Sec_Fetch_Site="same-site")[0] == 403
    assert ask(served, "/document", Sec_Fetch_Site="same-origin")[0] == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", ""])
def test_wrong_host(served: Served, host: str) -> None:
    assert ask(served, "/", Host=host)[0] == 403


@pytest.mark.parametrize("body", ["{", "", "[" * 60000, "\ud83d".encode("utf-8", "surrogatepass")])
def test_bad_json(served: Served, body: Any) -> None:
    assert post(served, body)[0] == 400


@pytest.mark.parametrize(
    "request_",
    [
        [],
        {},
        {"edit": "exec"},
        {"edit": ["pause"]},
        {"edit": "replace", "node": "x"},
        {"edit": "replace", "node": "x", "op": 3},
        {"edit": "replace", "node": "", "op": "relu"},
        {"edit": "replace", "node": "x", "op": "__import__('os')"},
        {"edit": "insert", "node": "x", "op": "lambda x: x"},
        {"edit": "insert", "node": "x", "op": "os.system"},
    ],
)
def test_malformed_edits(served: Served, request_: Any) -> None:
    status, said, _ = post(served, request_)
    assert status == 400
    assert said["error"]
    assert served.source.requests == []


def test_size_limit(served: Served) -> None:
    longest = {"edit": "pause", "note": "x" * LARGEST_REQUEST}
    with contextlib.suppress(ConnectionError):  # refused before all of it was sent
        assert post(served, longest)[0] == 413
    assert served.source.requests == []


def test_only_json_is_an_edit(served: Served) -> None:
    # A form of another site can send text/plain without asking first.
    assert post(served, '{"edit": "pause"}', Content_Type="text/plain")[0] == 415
    assert (
        ask(served, "/edit", "POST", Content_Type="application/json", Content_Length="x")[0] == 411
    )


def test_chunks_are_not_read(served: Served) -> None:
    assert post(served, {"edit": "pause"}, Transfer_Encoding="chunked")[0] == 411
    assert served.source.requests == []


def test_a_failing_source_is_told(served: Served) -> None:
    def fail() -> dict[str, Any]:
        raise KeyError("steps")

    served.source.document = fail
    assert ask(served, "/document")[:2] == (500, {"error": "KeyError: 'steps'"})
    assert ask(served, "/")[0] == 500


@pytest.mark.parametrize("path", ["/edit", "/page.html", "/../serve.py", "//etc/passwd"])
def test_nothing_else_is_there(served: Served, path: str) -> None:
    assert ask(served, path)[0] in (403, 404)


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "HEAD"])
def test_other_methods(served: Served, method: str) -> None:
    parts = urlsplit(served.url)
    connection = http.client.HTTPConnection(HOST, parts.port, timeout=10)
    connection.request(method, f"/?{parts.query}")
    assert connection.getresponse().status == 501
    connection.close()


def test_bad_query(served: Served) -> None:
    assert ask(served, "/document?since=one")[0] == 400
    assert ask(served, "/document?" + "&".join(f"a{k}=1" for k in range(50)))[0] == 400


def test_this_machine_only(served: Served) -> None:
    assert served._server.http.server_address[0] == HOST


def test_tokens_differ() -> None:
    with serve(Fake()) as one, serve(Fake()) as other:
        assert one._server.token != other._server.token
        assert len(one._server.token) >= 32
        assert ask(other, "/", token=one._server.token)[0] == 403


def test_many_connections_do_not_pile_up(served: Served) -> None:
    parts = urlsplit(served.url)
    before = threading.active_count()
    held = [socket.create_connection((HOST, parts.port), 5) for _ in range(MOST_CONNECTIONS + 20)]
    time.sleep(0.5)
    assert threading.active_count() <= before + MOST_CONNECTIONS
    for connection in held:
        connection.close()
    deadline = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert ask(served, "/document?since=1")[0] == 200


class Loris:
    """Connections that send a header for ever, a byte at a time."""

    def __init__(self, served: Served, count: int) -> None:
        port = urlsplit(served.url).port
        self.held = [socket.create_connection((HOST, port), 5) for _ in range(count)]
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.send)
        for connection in self.held:
            connection.sendall(b"GET / HTTP/1.1\r\nX-Slow: ")
        self.thread.start()

    def send(self) -> None:
        while not self.ended.wait(0.05):
            for connection in self.held:
                with contextlib.suppress(OSError):
                    connection.sendall(b"x")

    def close(self) -> None:
        self.ended.set()
        self.thread.join()
        for connection in self.held:
            connection.close()


def test_slow_clients_keep_nobody_out(served: Served) -> None:
    with contextlib.closing(Loris(served, MOST_CONNECTIONS)):
        time.sleep(0.3)
        started = time.monotonic()
        for _ in range(5):
            assert ask(served, "/document?since=1")[0] == 200
        assert time.monotonic() - started < 8  # and not the patience of all those


def test_readers_are_not_pushed_out(served: Served) -> None:
    """Those who have shown the token stay, however many others come."""
    parts = urlsplit(served.url)
    with socket.create_connection((HOST, parts.port), timeout=10) as stream:
        stream.sendall(
            f"GET /events?{parts.query} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode()
        )
        heard = b""
        while b"data: 1" not in heard:
            heard += stream.recv(4096)
        with contextlib.closing(Loris(served, 2 * MOST_CONNECTIONS)):
            time.sleep(0.3)
            served.source.count = 2
            while b"data: 2" not in heard:  # a sign of life may come before it
                news = stream.recv(4096)
                assert news, heard
                heard += news


def test_sending_slowly_is_no_way_to_stay(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "PATIENCE", 0.5)
    with contextlib.closing(Loris(served, 3)) as slow:
        for connection in slow.held:
            connection.settimeout(20)
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(4096) == b""


# --- how it ends ---


def test_close_ends_everything() -> None:
    before = threading.active_count()
    served = serve(Fake())
    parts = urlsplit(served.url)
    with socket.create_connection((HOST, parts.port), timeout=10) as stream:
        stream.sendall(
            f"GET /events?{parts.query} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode()
        )
        assert stream.recv(100)
        served.close()
        served.close()
        while stream.recv(4096):
            pass
    assert served.closed
    with pytest.raises(OSError):
        socket.create_connection((HOST, parts.port), timeout=1).close()
    deadline = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert threading.active_count() <= before


def test_a_taken_port_is_told(served: Served) -> None:
    port = urlsplit(served.url).port
    with pytest.raises(OSError, match=f"port {port} is not available"):
        serve(Fake(), port=port)


def test_what_can_be_served() -> None:
    with pytest.raises(TypeError, match=r"graph\.serve: source is a graph"):
        serve(3)
    x = weft.ones(2, requires_grad=True)
    graph = weft.graph.of((x * x).sum())
    for source in (graph, [graph, graph], Fake().document()):
        with serve(source) as served:
            assert ask(served, "/document")[1]["steps"]
            assert "not attached" in post(served, {"edit": "pause"})[1]["error"]


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_program_ends_though_a_page_is_served() -> None:
    done = run("""
        from weft.graph.serving import serve
        served = serve({"weft_graph": 1, "title": "", "steps": []})
        print("ready")
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ready\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_lets_go() -> None:
    done = run("""
        import os, socket, time, warnings
        from urllib.parse import urlsplit
        from weft.graph.serving import serve
        warnings.simplefilter("ignore")
        served = serve({"weft_graph": 1, "title": "", "steps": []})
        port = urlsplit(served.url).port
        child = os.fork()
        if child == 0:
            time.sleep(2)
            os._exit(0)
        served.close()
        # Were the socket still open in the child, the port would take connections.
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            print("still open")
        except OSError:
            print("closed")
        os.waitpid(child, 0)
    """)
    assert (done.returncode, done.stdout) == (0, "closed\n"), done.stderr


# --- a training that is followed ---


class Training:
    """A small training in a thread of its own, followed by a page."""

    def __init__(
        self, inputs: list[Any] | None = None, activation: Any = None, **options: Any
    ) -> None:
        self.inputs = inputs or [weft.ones(4, 4) * 0.5]
        self.activation = activation or weft.nn.ReLU()
        self.options = options
        self.losses: list[float] = []
        self.listeners: list[int] = []
        self.error: BaseException | None = None
        self.stop = threading.Event()
        self.ready = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self) -> None:
        try:
            self.train()
        except BaseException as error:
            self.error = error

    def train(self) -> None:
        from weft.core.modes import MODES

        generator = weft.Generator().manual_seed(3)
        first, last = weft.nn.Linear(4, 4), weft.nn.Linear(4, 1)
        with weft.no_grad():
            for p in (*first.parameters(), *last.parameters()):
                p.copy_(weft.randn(p.shape, generator=generator))
        self.model = weft.nn.Sequential(first, self.activation, last)
        optimizer = weft.optim.SGD(self.model.parameters(), lr=0.0)
        with serve(**self.options) as self.served:
            self.ready.set()
            k = 0
            while not self.stop.wait(0.003):
                optimizer.zero_grad()
                loss = self.model(self.inputs[k % len(self.inputs)]).pow(2).mean()
                loss.backward()
                optimizer.step()
                self.losses.append(loss.item())
                self.listeners.append(len(MODES.now.recorders))
                k += 1
        self.listeners.append(len(MODES.now.recorders))

    def __enter__(self) -> Training:
        self.thread.start()
        assert self.ready.wait(10)
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop.set()
        with contextlib.suppress(OSError):
            post(self.served, {"edit": "resume"})
        self.thread.join(10)
        assert not self.thread.is_alive()
        if self.error is not None:
            raise self.error

    def until(self, seen: Any, seconds: float = 10) -> Any:
        """Ask for the document until a function of it is true."""
        deadline = time.monotonic() + seconds
        while True:
            said = ask(self.served, "/document")[1]
            found = seen(said)
            if found:
                return found
            assert time.monotonic() < deadline, said["document"]
            time.sleep(0.02)

    def pause(self) -> None:
        assert post(self.served, {"edit": "pause"})[1] == {"ok": True}
        self.until(lambda said: said["document"]["paused"])

    def one_step(self) -> dict[str, dict[str, Any]]:
        """Run one step of a paused program; its nodes by name."""
        before = self.served.source.ended
        assert post(self.served, {"edit": "step"})[1] == {"ok": True}
        said = self.until(
            lambda said: (
                said if said["document"]["paused"] and said["steps"][-1]["step"] > before else None
            )
        )
        assert self.served.source.ended == before + 1
        return {node["name"]: node for node in said["steps"][-1]["nodes"]}

    def edit(self, **request: Any) -> dict[str, Any]:
        return post(self.served, request)[1]


def test_a_training_is_seen_without_a_word_from_it() -> None:
    with Training() as training:
        training.until(lambda said: len(said["steps"]) >= 3)
        said = ask(training.served, "/document")[1]
    nodes = {node["name"]: node for node in said["steps"][-1]["nodes"]}
    assert nodes["0.linear"]["module"] == "0"
    assert nodes["0.linear"]["time"] > 0
    assert {node["kind"] for node in nodes.values()} >= {
        "parameter",
        "forward",
        "backward",
        "optimizer",
    }
    numbers = [step["step"] for step in said["steps"]]
    assert numbers == sorted(set(numbers))


def test_nothing_listens_while_nobody_looks() -> None:
    with Training() as training:
        deadline = time.monotonic() + 10
        while len(training.listeners) < 30 and time.monotonic() < deadline:
            time.sleep(0.02)
    assert training.listeners[5:] == [0] * len(training.listeners[5:])
    assert len(training.served.source._written) == 1


def test_values_are_summed_up_and_let_go() -> None:
    with Training(values=True) as training:
        training.until(lambda said: said["steps"])
        step = ask(training.served, "/document")[1]["steps"][-1]
        assert training.served.source._graph._kept == {}
    relu = next(node for node in step["nodes"] if node["name"] == "1.relu")
    assert relu["stats"]["min"] >= 0
    assert sum(relu["stats"]["hist"]) == 16


def test_pause_holds_and_step_runs_one() -> None:
    with Training() as training:
        training.pause()
        count = len(training.losses)
        time.sleep(0.1)
        assert len(training.losses) == count
        training.one_step()
        time.sleep(0.1)
        assert len(training.losses) == count + 1
        assert training.edit(edit="resume") == {"ok": True}
        training.until(lambda said: len(training.losses) > count + 5)


def test_edits_act_from_the_next_step_on() -> None:
    with Training() as training:
        training.pause()
        old = training.losses[-1]
        assert training.edit(edit="replace", node="1.relu", op="tanh") == {"ok": True}
        assert training.edit(edit="insert", node="0.linear", op="sigmoid") == {"ok": True}
        nodes = training.one_step()
        assert {"1.tanh", "0.sigmoid"} <= set(nodes)
        assert "1.relu" not in nodes
        first, _, last = training.model
        wanted = last(first(training.inputs[0]).sigmoid().tanh()).pow(2).mean().item()
        training.one_step()
        assert training.losses[-1] == wanted != old
        # What an edit made can be edited in turn.
        assert training.edit(edit="replace", node="1.tanh", op="exp") == {"ok": True}
        assert "1.exp" in training.one_step()
        for _ in range(3):
            assert training.edit(edit="undo") == {"ok": True}
        assert training.edit(edit="undo") == {"error": "there is no edit to take back"}
        assert "1.relu" in training.one_step()
        training.one_step()
        assert training.losses[-1] == old


def test_remove() -> None:
    with Training() as training:
        training.pause()
        assert training.edit(edit="remove", node="1.relu") == {"ok": True}
        assert "1.relu" not in training.one_step()


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        ({"edit": "replace", "node": "1.relu", "op": "sum"}, "1.relu"),
        ({"edit": "replace", "node": "nowhere", "op": "tanh"}, "no node 'nowhere'"),
        ({"edit": "replace", "node": "0.weight", "op": "tanh"}, "0.weight"),
        ({"edit": "remove", "node": "1.relu.backward"}, "1.relu.backward"),
    ],
)
def test_refused_edits_change_nothing(request_: dict[str, Any], reason: str) -> None:
    with Training() as training:
        training.pause()
        old = training.losses[-1]
        assert reason in training.edit(**request_)["error"]
        training.one_step()
        assert ask(training.served, "/document")[1]["document"]["edits"] == []
        training.one_step()
        assert training.losses[-1] == old


def test_an_edit_that_fails_later_is_taken_back() -> None:
    square, oblong = weft.eye(4), weft.ones(5, 4)
    with Training(inputs=[square, square, square, oblong]) as training:
        training.pause()
        while len(training.losses) % 4 != 0:
            training.one_step()
        # What fits square results meets an oblong one three steps later.
        assert training.edit(edit="replace", node="1.relu", op="linalg_matrix_exp") == {"ok": True}
        names = [set(training.one_step()) for _ in range(5)]
        said = ask(training.served, "/document")[1]["document"]
    assert any("linalg_matrix_exp" in name for name in names[0])
    assert "1.relu" in names[4]
    assert said["edits"] == []
    assert "taken back" in said["note"]


def test_trying_an_edit_draws_no_random_numbers() -> None:
    def run(edited: bool) -> list[float]:
        weft.manual_seed(5)
        with Training(activation=weft.nn.Dropout(0.5)) as training:
            training.pause()
            weft.manual_seed(5)
            if edited:
                node = next(iter(n for n in training.one_step() if n.startswith("1.")))
                weft.manual_seed(5)
                for op in ("bernoulli", "dropout", "sum"):
                    training.edit(edit="replace", node=node, op=op)
                    training.edit(edit="undo")
            else:
                training.one_step()
                weft.manual_seed(5)
            count = len(training.losses)
            for _ in range(3):
                training.one_step()
            return training.losses[count:]

    assert run(False)[:2] == run(True)[:2]


def test_the_page_leaves_no_trace() -> None:
    with Training() as training:
        training.pause()
        training.edit(edit="replace", node="1.relu", op="tanh")
        training.one_step()
    assert training.listeners[-1] == 0
    from weft.autograd.engine import WATCHERS

    assert training.served.source not in WATCHERS


def test_interrupting_a_paused_program() -> None:
    program = """
        import sys, threading, time, os, signal
        # A program in the background of a shell inherits that interrupts are ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        import weft
        from weft.graph.serving import serve
        served = serve()
        model = weft.nn.Linear(2, 1)
        optimizer = weft.optim.SGD(model.parameters(), lr=0.1)
        def pause():
            served.source.edit({"edit": "pause"})
            while not served.source.document()["paused"]:
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=pause, daemon=True).start()
        try:
            while True:
                model(weft.ones(3, 2)).sum().backward()
                optimizer.step()
        except KeyboardInterrupt:
            print("stopped")
    """
    done = run(program)
    assert (done.returncode, done.stdout) == (0, "stopped\n"), done.stderr
    assert done.stderr.startswith("weft graph: http://127.0.0.1:")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_is_not_followed() -> None:
    done = run("""
        import os, warnings
        import weft
        from weft.core.modes import MODES
        from weft.graph.serving import serve
        warnings.simplefilter("ignore")
        served = serve()
        served.source.edit({"edit": "pause"})
        model = weft.nn.Linear(2, 1)
        optimizer = weft.optim.SGD(model.parameters(), lr=0.1)
        child = os.fork()
        if child == 0:
            for _ in range(5):
                model(weft.ones(3, 2)).sum().backward()
                optimizer.step()
            os._exit(7 if MODES.now.recorders == () else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """)
    assert (done.returncode, done.stdout) == (0, "7\n"), done.stderr


def test_steps_ended_by_hand() -> None:
    with serve() as served:
        w = weft.ones(3, requires_grad=True)
        for _ in range(3):
            (w * 2).sum().backward()
            with weft.no_grad():
                w -= 0.1 * w.grad
            w.grad = None
            served.source.step()
        said = ask(served, "/document")[1]
    assert said["steps"][-1]["step"] >= 2
    assert "mul" in {node["name"] for node in said["steps"][-1]["nodes"]}


def test_steps_and_losses_that_nobody_watched_count() -> None:
    model = weft.nn.Linear(3, 1)
    optimizer = weft.optim.SGD(model.parameters(), lr=0.1)
    losses = []

    def train(steps: int, passes: int = 1) -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            for _ in range(passes):
                loss = model(weft.ones(2, 3)).square().mean()
                loss.backward()
                losses.append(loss.item())
            optimizer.step()

    with serve() as served:
        train(40)  # nobody reads: nothing is recorded but the first whole step
        said = ask(served, "/document")[1]
        assert said["document"]["ended"] == 40
        assert [step["step"] for step in said["steps"]] == [2]
        assert said["document"]["loss"] == [[k, pytest.approx(v)] for k, v in enumerate(losses, 1)]
        train(2, passes=2)
        number, value = ask(served, "/document")[1]["document"]["loss"][41]
        assert (number, value) == (42, pytest.approx((losses[42] + losses[43]) / 2))
        deadline = time.monotonic() + 20
        while len(said["steps"]) < 2:  # with a reader, a step is recorded now and then
            assert time.monotonic() < deadline
            time.sleep(0.02)
            train(1)
            said = ask(served, "/document")[1]
        count = len(losses) - 2  # two steps had two losses
        assert said["document"]["ended"] == said["steps"][-1]["step"] == count
        assert said["document"]["loss"][-1] == [count, pytest.approx(losses[-1])]
        served.close()
        train(3)
        assert served.source.ended == count


def test_a_long_loss_curve_keeps_its_whole_length() -> None:
    from weft.graph.live import MOST_POINTS, Curve

    curve = Curve()
    for step in range(1, 50_001):
        curve.add(1 / step)
        curve.end(step)
    points = curve.document()
    assert MOST_POINTS / 2 <= len(points) <= MOST_POINTS
    gaps = {b[0] - a[0] for a, b in itertools.pairwise(points)}
    assert len(gaps) == 1 and points[-1][0] > 50_000 - 2 * gaps.pop()
    assert all(value == 1 / step for step, value in points)


def test_following_changes_no_numbers() -> None:
    def train(followed: bool) -> list[Any]:
        weft.manual_seed(1)
        model = weft.nn.Sequential(weft.nn.Linear(4, 8), weft.nn.Dropout(0.2), weft.nn.Linear(8, 2))
        optimizer = weft.optim.Adam(model.parameters(), lr=0.01)
        with serve(values=True) if followed else contextlib.nullcontext() as served:
            for _ in range(20):
                if served is not None:
                    served.source.version()
                    served.source._due = 0.0  # every step is recorded
                optimizer.zero_grad()
                model(weft.randn(5, 4)).pow(2).mean().backward()
                optimizer.step()
            if served is not None:
                assert len(served.source._written) >= 5
        return [p.detach().numpy().tobytes() for p in model.parameters()]

    assert train(True) == train(False)


# --- in a browser ---


@pytest.fixture(scope="module")
def browser() -> Iterator[browsers.Browser]:
    with browsers.running() as running:
        yield running


needs_browser = pytest.mark.skipif(browsers.find() is None, reason="there is no Chromium here")


@needs_browser
def test_page_edits_a_running_training(browser: browsers.Browser) -> None:
    with Training(values=True) as training:
        page = browser.page(training.served.url)
        page.wait("weftGraph.scene.faces.length > 0 && weftGraph.document.steps.length > 1")
        press = lambda name: page.run(f"document.getElementById('{name}').click()")
        status = "document.getElementById('status').textContent"
        press("pause")
        page.wait(f"{status} === 'paused'")
        count = len(training.losses)
        page.run("weftGraph.go(weftGraph.step.byName.get('1.relu'))")
        page.run("document.getElementById('edit-op').focus()")
        page.type("tanh")
        page.run("document.querySelector('[data-edit=replace]').click()")
        page.wait("weftGraph.document.edits.length === 1")
        assert len(training.losses) == count
        press("once")
        page.wait("weftGraph.step.byName.has('1.tanh') && weftGraph.document.paused")
        assert len(training.losses) == count + 1
        assert page.run("weftGraph.step.byName.get('1.tanh').mark") == "changed"
        assert page.run("weftGraph.step.byName.get('1.tanh').was.name") == "1.relu"
        assert page.run("weftGraph.chosen.name") == "1.tanh"  # it follows what was replaced
        assert not page.run("document.getElementById('curve').hidden")
        curve = page.run("document.getElementById('curve').innerText")
        assert f"at step {page.run('weftGraph.step.number'):,}" in curve and "so far" in curve
        page.run("weftGraph.edit({edit: 'replace', node: '1.tanh', op: 'sum'})")
        refused = "document.getElementById('status').className === 'refused'"
        page.wait(refused)
        assert "1.tanh" in page.run(status)
        shown = page.run("weftGraph.step.number")
        training.served.source.edit({"edit": "step"})
        page.wait(f"weftGraph.step.number > {shown} && weftGraph.document.paused")
        assert page.run(refused)  # no later document wipes the reason away
        press("undo")
        page.wait("weftGraph.document.edits.length === 0")
        press("pause")
        page.wait("!weftGraph.step.byName.has('1.tanh') && !weftGraph.document.paused")
        shown = page.run("weftGraph.step.number")
        page.wait(f"weftGraph.step.number > {shown}")
        assert page.complaints() == []
    page.wait(f"{status} === 'the program has ended'")
    page.close()


@needs_browser
def test_page_of_a_wrong_token(browser: browsers.Browser, served: Served) -> None:
    page = browser.page(served.url + "x")
    assert page.run("document.body.innerText") == '{"error": "wrong token"}'
    assert page.run("typeof weftGraph") == "undefined"
    page.close()


@needs_browser
def test_other_sites_can_do_nothing(browser: browsers.Browser, served: Served) -> None:
    """Even a page that knows the token is refused if it comes from another origin."""
    parts = urlsplit(served.url)
    with serve(Fake()) as other:
        page = browser.page(other.url)
        ours = f"http://{HOST}:{parts.port}"
        read = f"fetch('{ours}/document?{parts.query}').then(() => 'read', () => 'refused')"
        assert page.run(read) == "refused"
        page.send("Page.setBypassCSP", enabled=True)  # its own policy forbids such requests
        page.go(other.url + "&again")
        body = json.dumps(json.dumps({"edit": "pause"}))
        for mode, kind in (("no-cors", "text/plain"), ("cors", "application/json")):
            said = page.run(
                f"fetch('{ours}/edit?{parts.query}', {{method: 'POST', mode: '{mode}',"
                f" body: {body},"
                f" headers: {{'Content-Type': '{kind}'}}}}).then(r => r.status, () => 'refused')"
            )
            assert said in (0, "refused")
        assert page.run(read) == "refused"
        page.close()
    assert served.source.requests == []


@needs_browser
def test_a_page_of_nothing_yet(browser: browsers.Browser) -> None:
    source = Fake()
    late, source.steps = source.steps, []
    with serve(source) as served:
        page = browser.page(served.url)
        assert page.run("document.getElementById('empty').innerText").startswith(
            "The first whole step"
        )
        source.steps = late
        source.count = 2
        page.wait("weftGraph.scene.faces.length > 0")
        assert page.run("document.getElementById('empty').hidden")
        assert page.complaints() == []
        page.close()
