"""FastAPI service that takes orders and publishes each once, however often its client tries."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import FastAPI, Header, Request
from pydantic import BaseModel

import penstock
from penstock.client import Client


class Order(BaseModel):
    """An order of a customer."""

    item: str
    count: int


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Keep one connection for all requests; it reconnects by itself."""
    async with penstock.connect(os.environ.get("PENSTOCK", "localhost:5672"), client_id="orders") as client:
        app.state.penstock = client
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=202)
async def take_order(
    order: Order, request: Request, idempotency_key: Annotated[str, Header()]
) -> dict[str, int]:
    """Publish an order; the same key again publishes nothing, and returns the same sequence."""
    client: Client = request.app.state.penstock
    receipt = await client.publish(
        f"orders/{order.item}",
        order.model_dump_json(),
        content_type="application/json",
        message_id=idempotency_key,
    )
    return {"sequence": receipt.sequence}
