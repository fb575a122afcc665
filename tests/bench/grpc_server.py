"""Minimal gRPC server that delivers the first three messages in a given order."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue

import grpc

from penstock.wire.sidecar.messages import nexusd
from penstock.wire.sidecar.messages import penstock as v1


@contextmanager
def grpc_server(order: str, *, status: grpc.StatusCode | None = None) -> Iterator[int]:
    """Its port.

    Args:
        order: the first three messages as the subscriber gets them: swapped, doubled, lost.
        status: of every publish.
    """
    sidecar = Sidecar(order, status)
    server = grpc.server(ThreadPoolExecutor(max_workers=8))
    server.add_generic_rpc_handlers((sidecar.handlers(), sidecar.own_handlers()))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield port
    sidecar.queue.put(None)  # unblocks the subscriber
    server.stop(None).wait(10)


class Sidecar:
    """For one subscriber and one publisher."""

    def __init__(self, order: str, status: grpc.StatusCode | None) -> None:
        self.order = order
        self.status = status
        self.firsts: list[tuple[int, bytes]] = []
        self.queue: SimpleQueue[tuple[int, bytes] | None] = SimpleQueue()
        self.sequence = 0

    def take(self, payload: bytes) -> None:
        self.sequence += 1
        message = (self.sequence, payload)
        if self.sequence > 3:
            self.queue.put(message)
            return
        self.firsts.append(message)
        if self.sequence == 3:
            for index in self.order:
                self.queue.put(self.firsts[int(index)])

    def handlers(self) -> grpc.GenericRpcHandler:
        return grpc.method_handlers_generic_handler(
            "nexusd.sidecar.SidecarService",
            {
                "Publish": grpc.unary_unary_rpc_method_handler(
                    self.publish, nexusd.PublishRequest.FromString, serialize
                ),
                "Subscribe": grpc.unary_stream_rpc_method_handler(
                    self.subscribe, nexusd.SubscribeRequest.FromString, serialize
                ),
            },
        )

    def publish(
        self, request: nexusd.PublishRequest, context: grpc.ServicerContext
    ) -> nexusd.PublishResponse:
        if self.status is not None:
            context.abort(self.status, "not today")
        self.take(request.payload)
        return nexusd.PublishResponse(success=True, message_id="some")

    def subscribe(
        self, _request: nexusd.SubscribeRequest, _context: grpc.ServicerContext
    ) -> Iterator[nexusd.MessageEvent]:
        yield nexusd.MessageEvent(subscription_info=nexusd.SubscriptionInfo(subscription_id="some"))
        while message := self.queue.get():
            sequence, payload = message
            yield nexusd.MessageEvent(message=nexusd.Message(payload=payload, sequence_number=sequence))

    def own_handlers(self) -> grpc.GenericRpcHandler:
        return grpc.method_handlers_generic_handler(
            "penstock.v1.Penstock",
            {
                "Publish": grpc.stream_stream_rpc_method_handler(
                    self.publish_batches, v1.PublishBatch.FromString, serialize
                ),
                "Subscribe": grpc.stream_stream_rpc_method_handler(
                    self.listen, v1.SubscribeRequest.FromString, serialize
                ),
            },
        )

    def publish_batches(
        self, batches: Iterator[v1.PublishBatch], context: grpc.ServicerContext
    ) -> Iterator[v1.PublishAck]:
        for batch in batches:
            if self.status is not None:
                context.abort(self.status, "not today")
            payloads = [payload for entry in batch.messages for payload in entry.payloads]
            for payload in payloads:
                self.take(payload)
            yield v1.PublishAck(batch_id=batch.batch_id, accepted=len(payloads))

    def listen(
        self, requests: Iterator[v1.SubscribeRequest], _context: grpc.ServicerContext
    ) -> Iterator[v1.SubscribeEvent]:
        yield v1.SubscribeEvent(opened=v1.Opened())
        yield v1.SubscribeEvent(added=v1.Added(filters=next(requests).add.filters))
        while message := self.queue.get():
            sequence, payload = message
            yield v1.SubscribeEvent(
                delivery=v1.Delivery(runs=[v1.Run(sequence=sequence, payloads=[payload])])
            )


def serialize(message: nexusd.MessageEvent) -> bytes:
    return message.SerializeToString()
