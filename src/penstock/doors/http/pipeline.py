"""The requests of one connection, from their heads to the last bytes of their answers.

Hot routes begin in the order in which their requests came, and need not wait for one another's answers; the
application gets one request at a time, when all before it are answered. Answers leave in the same order.
"""

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

import structlog

from penstock.doors.http.application import Hosted
from penstock.doors.http.outflow import Outflow
from penstock.doors.http.problems import INTERNAL_DETAIL, answer_for
from penstock.doors.http.recognition import Recognition
from penstock.doors.http.requests import Refusal, Request, goodbye
from penstock.doors.http.responses import CONTINUE, Headers, build, build_head
from penstock.doors.http.routes import Handler
from penstock.doors.http.waiting import BODY, FULL, QUEUE
from penstock.doors.notes import shortened
from penstock.doors.origins import cors_headers
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.doors.http.door import HttpDoor
    from penstock.doors.http.protocol import HttpConnection

log = structlog.get_logger("penstock.http")


class Pipeline:
    """What was asked on one connection, and is not answered to the last byte."""

    __slots__ = (
        "_answers",
        "_connection",
        "_door",
        "_is_advancing",
        "_pending",
        "_recognition",
        "_waits_for_app",
    )

    def __init__(self, connection: "HttpConnection", door: "HttpDoor") -> None:
        self._connection = connection
        self._door = door
        self._pending: deque[Request] = deque()
        self._answers: deque[Request] = deque()  # those that have begun
        self._is_advancing = self._waits_for_app = False
        self._recognition = Recognition(connection, door, self._pending)

    def __len__(self) -> int:
        return len(self._answers) + len(self._pending)

    # Beginning

    def add(self, request: Request) -> None:
        """The head of a request has come."""
        self._pending.append(request)
        self._recognition.look_at(request)  # whatever is before it
        # What can begin only with its body need not be looked at before.
        is_awaited = request.route is not None and request.upgrade is None
        if not is_awaited or request.refusal is not None or request.wants_continue:
            self.advance()

    def advance(self) -> None:
        """Begin every request that can begin."""
        if self._is_advancing:
            return
        self._is_advancing = True
        pending, answers = self._pending, self._answers
        try:
            while pending:
                request = pending[0]
                route = request.route
                is_hot = route is not None and not route.waits_its_turn
                is_simple = is_hot and request.is_received and request.is_proven and not answers
                if not (is_simple and not self._connection.waits) and not self._may_begin(request):
                    break
                answers.append(pending.popleft())
                self._begin(request)
        finally:
            self._is_advancing = False

    def _may_begin(self, request: Request) -> bool:
        before, route = self._answers, request.route
        if before and (route is None or route.waits_its_turn or _goes_on(before[-1])):
            return False
        if self._connection.waits & FULL:
            return False
        if request.refusal is not None:
            return True
        if not request.is_proven:
            return False
        if request.upgrade is not None:
            return True
        if route is None:
            return self._has_app()
        if request.wants_continue and not before:
            request.wants_continue = False
            self._connection.write(CONTINUE)
        return request.is_received and (not route.waits_its_turn or self._connection.has_sent_all())

    def _has_app(self) -> bool:
        application = self._door.application
        if not application.is_ready and not self._waits_for_app:
            self._waits_for_app = True
            application.when_ready(self._on_app)
        return application.is_ready

    def _on_app(self) -> None:
        self._waits_for_app = False
        self._connection.go_on()

    def _begin(self, request: Request) -> None:
        self._connection.wait_for_reader(None)
        if request.refusal is not None:
            self.refuse(request, request.refusal)
        elif request.upgrade is not None:
            if self._door.is_draining:
                self.refuse(request, goodbye())
            else:
                self._connection.hand_over(request.upgrade, request.identity)
        elif request.route is None:
            request.hosted = Hosted(self._connection, request, self._door)
            request.hosted.begin()
        else:
            parts = request.parts
            if parts:
                request.body = parts[0] if len(parts) == 1 else b"".join(parts)
                parts.clear()
            self._call(request.route.handler, request)

    def _call(self, handler: Handler, request: Request) -> None:
        try:
            handler(request)
        except PenstockError as error:
            request.fail(error)
        except Exception:  # a mistake of ours
            log.exception("request failed", method=request.method, path=shortened(request.path))
            request.fail_internally()
        else:
            return
        if request.outflow is not None:  # nobody would go on with it
            self._connection.abort()

    # Answering

    def refuse(self, request: Request, refusal: Refusal) -> None:
        """Answer what the listener itself does not accept."""
        if refusal.is_fatal:
            request.keep_alive = False
        self._door.on_refused(request, refusal)
        status, body, content_type = answer_for(refusal.status, refusal.detail, refusal.code, request.path)
        request.respond(status, body, content_type=content_type, headers=refusal.headers)
        self._connection.open(BODY)  # what is left of its body is thrown away

    def respond(
        self, request: Request, status: int, body: bytes, content_type: str, headers: Headers
    ) -> None:
        """Give the whole answer to a request."""
        request.answered = True
        if request.wants_continue:
            request.keep_alive = False  # its body comes or not, and what then comes could be either
        if request.reader is not None:
            headers = [*headers, *cors_headers(request.reader)]
        date, connection = self._door.date_line(), self.connection_line(request)
        is_head = request.method == "HEAD"
        try:
            answer = build(status, body, content_type, headers, date, connection=connection, is_head=is_head)
        except ValueError:  # a mistake of ours
            log.exception("answer cannot be written", path=shortened(request.path))
            status, body, content_type = answer_for(500, INTERNAL_DETAIL, PenstockError.code, request.path)
            answer = build(status, body, content_type, (), date, connection=connection, is_head=is_head)
        self._door.count_response(status)
        self.put(request, answer)
        self.finish(request)

    def begin_flow(self, request: Request, status: int, content_type: str, headers: Headers) -> Outflow:
        """Give the head of an answer that goes on."""
        is_chunked = request.version == "1.1"
        request.keep_alive = request.keep_alive and is_chunked
        if request.reader is not None:
            headers = [*headers, *cors_headers(request.reader)]
        date, connection = self._door.date_line(), self.connection_line(request)
        head = build_head(status, content_type, headers, date, connection=connection, is_chunked=is_chunked)
        request.answered = True
        self._door.count_response(status)
        self.put(request, head)
        flow = Outflow(self, request, is_chunked=is_chunked)
        if request.method == "HEAD":
            flow.let_go()
            self.finish(request)
        else:
            request.outflow = flow
        return flow

    def end_flow(self, request: Request, last: bytes) -> None:
        """An answer that went on has been ended by its route."""
        request.outflow = None
        if last:
            self.put(request, last)
        if self._door.is_draining:
            request.keep_alive = False
        self.finish(request)

    def has_room_for(self, request: Request) -> bool:
        """Whether more of an answer could leave at once."""
        return self._answers[0] is request and not self._connection.is_full

    def tell_room(self, *, is_full: bool) -> None:
        """The client has too much to read, or has read on."""
        flow = self._answers[0].outflow if self._answers else None
        if flow is not None:
            flow.tell_room(is_full=is_full)

    def drain(self) -> None:
        """The server is about to stop: answers that go on come to an end."""
        for request in list(self._answers):
            if request.outflow is not None:
                request.outflow.drain()

    def connection_line(self, request: Request) -> bytes:
        """What an answer says about the connection, as a line; none if all is as usual."""
        if self._door.is_draining and len(self) <= 1:
            request.keep_alive = False
        if not request.keep_alive:
            return b"connection: close\r\n"
        return b"" if request.version == "1.1" else b"connection: keep-alive\r\n"

    def put(self, request: Request, data: bytes) -> None:
        """Write a part of an answer, or keep it until those before it are written."""
        if self._answers[0] is request:
            self._connection.write(data)
        else:
            request.written.append(data)

    def finish(self, request: Request) -> None:
        """An answer has been given to its last byte."""
        request.is_answered = True
        if request.held_bytes:
            self._door.bodies.release(request)
        answers = self._answers
        while answers and answers[0].is_answered:
            done = answers.popleft()
            if done.hosted is not None or done.on_gone is not None:
                done.hosted = done.on_gone = None  # they refer to it
            if not done.keep_alive:
                self._connection.end(is_lingering=not done.is_received or done.refusal is not None)
                return
            if answers:
                for data in answers[0].written:
                    self._connection.write(data)
                answers[0].written.clear()
                if not self._connection.is_full:
                    self.tell_room(is_full=False)
        if not answers and not self._pending:
            self._connection.on_idle()
        if self._connection.waits & QUEUE and len(self) < self._door.settings.max_pipelined:
            self._connection.open(QUEUE)
        elif self._pending and not self._is_advancing:
            self._connection.go_on()

    # Endings

    def end_with(self, request: Request | None, refusal: Refusal, path: str) -> None:
        """Answer what cannot be read any further, behind everything before it, and then end.

        Args:
            request: the one whose body it was, if it was a body.
            path: what was asked for, as far as one can tell.
        """
        if request is None:
            request = Request(self._connection, "GET", path, b"", b"")
            self._door.requests += 1
            self._pending.append(request)
        elif request.is_answered:  # and nobody wanted that body
            if self._answers:
                self._answers[-1].keep_alive = False
            else:
                self._connection.end(is_lingering=True)
            return
        elif request.answered:
            self._connection.abort()
            return
        elif request.hosted is not None:
            request.hosted.leave()
            request.refusal = refusal
            self.refuse(request, refusal)
            return
        request.refusal = refusal
        self.advance()

    def on_end_of_input(self) -> bool:
        """The peer sends no more; tells whether it still gets something.

        It may have closed only its direction, or have gone. Who asked to be told is told that it has gone,
        and the password of who seems to have is not checked.
        """
        if self._recognition.is_checking:
            return False
        requests = [*self._answers, *self._pending]
        for request in requests:
            if request.on_gone is not None or request.outflow is not None or not request.is_received:
                self._leave(request)
            elif request.hosted is not None:
                request.hosted.on_end_of_input()
        if any(request.is_gone for request in requests):
            self.clear()  # so that none of them begins any more
        return len(self) > 0

    def clear(self) -> None:
        """There is nobody any more who could be answered."""
        self._recognition.cancel()
        for request in [*self._answers, *self._pending]:
            self._leave(request)
        self._answers.clear()
        self._pending.clear()

    def close(self) -> None:
        """There is no connection any more; it refers to us."""
        self.clear()
        self._recognition.close()
        if self._waits_for_app:
            self._door.application.forget(self._on_app)
        del self._connection

    def _leave(self, request: Request) -> None:
        """Tell whoever works on a request that the one who asked has gone."""
        if request.is_gone:
            return
        request.is_gone = True
        self._door.bodies.release(request)
        if request.hosted is not None:
            request.hosted.leave()
        if request.outflow is not None:
            request.outflow.leave()
        if request.on_gone is not None and not request.answered:
            with suppress(PenstockError):
                request.on_gone()
        request.let_go()


def _goes_on(request: Request) -> bool:
    """Whether nobody can say when an answer that has begun will end."""
    return request.hosted is not None or request.outflow is not None
