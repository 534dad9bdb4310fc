"""The page beside a running program: a small server that only this machine can reach.

Every request needs the token of the address; requests that another site's page makes, or that come
under another host's name, are refused. What arrives is data: names of edits, nodes and registered
ops. Nothing of it is ever run as code.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import secrets
import socket
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from weft.graph import page

HOST = "127.0.0.1"
LARGEST_REQUEST = 64 * 1024
MOST_CONNECTIONS = 32
PATIENCE = 20.0  # seconds that a connection may take to send its request
LOOK_EVERY = 0.1  # seconds between looks for news
KEEP_ALIVE = 10.0  # seconds after which an idle stream sends a keep-alive
FORBIDDEN, BAD = HTTPStatus.FORBIDDEN, HTTPStatus.BAD_REQUEST

# The fields of an edit besides "edit", by its kind.
EDITS: dict[str, tuple[str, ...]] = {
    "replace": ("node", "op"),
    "insert": ("node", "op"),
    "remove": ("node",),
    "undo": (),
    "pause": (),
    "resume": (),
    "step": (),
}


class RequestRefused(Exception):
    """A request that gets an error as its answer."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class Server:
    """Serves a source's document, news of it, and takes edits, until it is closed."""

    def __init__(self, source: Any, port: int, ops: Callable[[], list[str]]) -> None:
        self.source, self.ops = source, ops
        self.token = secrets.token_urlsafe(24)
        self.closed = threading.Event()
        self.written: list[tuple[dict[str, Any], str]] = []
        self.lock = threading.Lock()
        self.http = _Http((HOST, port), _ConnectionHandler)
        self.http.owner = self
        self.port = int(self.http.server_address[1])
        names = (HOST, "localhost")
        self.hosts = {f"{name}:{self.port}" for name in names}
        self.origins = {f"http://{host}" for host in self.hosts}
        self.thread = threading.Thread(
            target=self.http.serve_forever, args=(LOOK_EVERY,), name="weft-graph", daemon=True
        )
        self.thread.start()

    @property
    def url(self) -> str:
        """The address of the page, with its token."""
        return f"http://{HOST}:{self.port}/?token={self.token}"

    def close(self) -> None:
        """Stop serving; streams that are open end. Doing so twice is harmless."""
        if self.closed.is_set():
            return
        self.closed.set()
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()

    def abandon(self) -> None:
        """Let go of the socket in a forked child, where the serving thread does not exist."""
        self.closed.set()
        self.http.socket.close()

    def document(self, since: int | None, after: int | None) -> bytes:
        """What is new to a reader that has version ``since``, with steps up to ``after``."""
        with self.lock:
            version = self.source.version()
            if since == version:
                return page.dumps({"version": version}).encode()
            document = dict(self.source.document())
            steps = document.pop("steps")
            numbers = [step["step"] for step in steps]
            fresh = numbers.index(after) + 1 if after in numbers else 0
            head = {"version": version, "document": document, "kept": numbers[:fresh]}
            texts = self._texts(steps)[fresh:]
        return f'{page.dumps(head)[:-1]},"steps":[{",".join(texts)}]}}'.encode()

    def _texts(self, steps: list[dict[str, Any]]) -> list[str]:
        """The steps as JSON; each is written once, since steps don't change."""
        known = {id(step): text for step, text in self.written}
        self.written = [(step, known.get(id(step)) or page.dumps(step)) for step in steps]
        return [text for _, text in self.written]

    def html(self) -> bytes:
        """The page with the newest document in it."""
        version = self.source.version()
        live = {"version": version, "ops": self.ops()}
        return page.html(self.source.document(), live).encode()

    def edit(self, request: Any) -> dict[str, Any]:
        """Check an edit and pass it on; a malformed one is the client's error."""
        self._check(request)
        try:
            return dict(self.source.edit(request))
        except Exception as error:  # the program goes on whatever an edit does
            return {"error": f"{type(error).__name__}: {error}"}

    def _check(self, request: Any) -> None:
        if not isinstance(request, dict):
            raise RequestRefused(BAD, "an edit is a JSON object")
        kind = request.get("edit")
        if not isinstance(kind, str) or kind not in EDITS:
            raise RequestRefused(BAD, f"edit: one of {', '.join(EDITS)}")
        for name in EDITS[kind]:
            if not isinstance(request.get(name), str) or not request[name]:
                raise RequestRefused(BAD, f"{kind}: needs {name!r}, a name")
        if "op" in EDITS[kind] and request["op"] not in self.ops():
            raise RequestRefused(BAD, f"{kind}: no op is registered as {request['op']!r}")


class _Http(ThreadingHTTPServer):
    """Threads that end with the program, and no more of them than a few readers need."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = False
    owner: Server

    def __init__(self, *args: Any) -> None:
        # The connections; of each that we wait for, since when, and of others None.
        self.waits: dict[Any, float | None] = {}
        self.guard = threading.Lock()
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self.guard:
            if len(self.waits) >= MOST_CONNECTIONS and not self._give_up_slowest():
                self.shutdown_request(request)
                return
            self.waits[request] = time.monotonic()
        try:
            super().process_request(request, client_address)
        except BaseException:
            self.waits.pop(request, None)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self.guard:
                self.waits.pop(request, None)

    def now_waits(self, request: Any, waits: bool) -> None:
        """Record whether a connection's request is pending, or being processed."""
        with self.guard:
            if request in self.waits:
                self.waits[request] = time.monotonic() if waits else None

    def service_actions(self) -> None:
        """Drop clients that take too long to send their request, however many bytes they send."""
        late = time.monotonic() - PATIENCE
        with self.guard:
            for request in [r for r, since in self.waits.items() if since and since < late]:
                self._give_up(request)

    def _give_up_slowest(self) -> bool:
        """Make room for a new connection by closing the one that has been silent longest."""
        waiting = {r: since for r, since in self.waits.items() if since}
        if waiting:
            self._give_up(min(waiting, key=lambda r: waiting[r]))
        return bool(waiting)

    def _give_up(self, request: Any) -> None:
        del self.waits[request]
        with contextlib.suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)  # its thread reads the end, and ends

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that disconnects is no event; nothing is written to the program's output."""


class _ConnectionHandler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server_version, sys_version = "weft", ""
    timeout = PATIENCE
    server: _Http

    def do_GET(self) -> None:
        """The page, the document, or the stream of news."""
        self._answer({"/": self._page, "/document": self._document, "/events": self._events})

    def do_POST(self) -> None:
        """An edit."""
        self._answer({"/edit": self._edit})

    def log_message(self, *args: Any) -> None:
        """The output belongs to the program."""

    def _answer(self, places: dict[str, Callable[[dict[str, list[str]]], None]]) -> None:
        try:
            asked = urlsplit(self.path)
            query = parse_qs(asked.query, max_num_fields=8)
            self._guard(query)
            self.server.now_waits(self.connection, False)
            if asked.path not in places:
                raise RequestRefused(HTTPStatus.NOT_FOUND, "there is nothing here")
            places[asked.path](query)
        except RequestRefused as refused:
            self._refuse(refused.status, refused.reason)
        except ValueError:
            self._refuse(BAD, "this request can't be read")
        except OSError:
            self.close_connection = True
        except Exception as error:  # the source failed; the reader is told, the program goes on
            failed = f"{type(error).__name__}: {error}"
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, failed)
        finally:
            self.server.now_waits(self.connection, True)

    def _guard(self, query: dict[str, list[str]]) -> None:
        """The three things that every request needs: our host, no foreign origin, the token."""
        owner = self.server.owner
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or hosts[0].lower() not in owner.hosts:
            raise RequestRefused(FORBIDDEN, "wrong host")
        origins = self.headers.get_all("Origin") or []
        site = self.headers.get("Sec-Fetch-Site", "none").lower()
        if any(o.lower() not in owner.origins for o in origins):
            raise RequestRefused(FORBIDDEN, "foreign origin")
        # Following a link to the page is fine from anywhere that knows the token.
        if site not in ("none", "same-origin") and urlsplit(self.path).path != "/":
            raise RequestRefused(FORBIDDEN, "foreign origin")
        given = query.get("token", [])
        if len(given) != 1 or not hmac.compare_digest(given[0].encode(), owner.token.encode()):
            raise RequestRefused(FORBIDDEN, "wrong token")

    # --- places ---

    def _page(self, query: dict[str, list[str]]) -> None:
        self._send("text/html; charset=utf-8", self.server.owner.html())

    def _document(self, query: dict[str, list[str]]) -> None:
        since, after = (int(query[k][0]) if k in query else None for k in ("since", "after"))
        self._send("application/json", self.server.owner.document(since, after))

    def _events(self, query: dict[str, list[str]]) -> None:
        owner = self.server.owner
        self.close_connection = True
        self.send_response(HTTPStatus.OK)
        self._headers("text/event-stream", None)
        told, quiet = None, 0.0
        while not owner.closed.is_set() and not self._left():
            version = owner.source.version()
            if version != told:
                told, quiet = version, 0.0
                self.wfile.write(f"data: {version}\n\n".encode())
            elif quiet >= KEEP_ALIVE:
                quiet = 0.0
                self.wfile.write(b":\n\n")
            owner.closed.wait(LOOK_EVERY)
            quiet += LOOK_EVERY

    def _left(self) -> bool:
        """Whether the reader has closed the stream; a reader has nothing to say on it."""
        self.connection.settimeout(0)
        try:
            return self.connection.recv(1, socket.MSG_PEEK) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True
        finally:
            self.connection.settimeout(PATIENCE)

    def _edit(self, query: dict[str, list[str]]) -> None:
        body = self._body()
        try:
            request = json.loads(body)
        except (ValueError, RecursionError):
            raise RequestRefused(BAD, "the body is not JSON") from None
        self._send("application/json", page.dumps(self.server.owner.edit(request)).encode())

    def _body(self) -> bytes:
        if self.headers.get_content_type() != "application/json":
            raise RequestRefused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "an edit is application/json")
        length = self.headers.get("Content-Length")
        chunked = "Transfer-Encoding" in self.headers
        if length is None or not length.isdecimal() or chunked:
            raise RequestRefused(HTTPStatus.LENGTH_REQUIRED, "an edit says how long it is")
        if int(length) > LARGEST_REQUEST:
            raise RequestRefused(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "this is too long for an edit"
            )
        return self.rfile.read(int(length))

    # --- answers ---

    def _send(self, kind: str, body: bytes, status: HTTPStatus = HTTPStatus.OK) -> None:
        self.send_response(status)
        self._headers(kind, len(body))
        self.wfile.write(body)

    def _refuse(self, status: HTTPStatus, reason: str) -> None:
        # The body of a refused request is not read, so the connection can't be used again.
        self.close_connection = True
        self._send("application/json", json.dumps({"error": reason}).encode(), status)

    def _headers(self, kind: str, length: int | None) -> None:
        said = {
            "Content-Type": kind,
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
            "Content-Security-Policy": "frame-ancestors 'none'",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cross-Origin-Opener-Policy": "same-origin",
        }
        for name, value in said.items():
            self.send_header(name, value)
        if length is not None:
            self.send_header("Content-Length", str(length))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
