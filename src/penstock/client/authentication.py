"""How a client proves a password without sending it: SCRAM in AUTH packets (MQTT 5 section 4.12).

The server has to prove that it knows the password as well, so nobody is taken in by one that does not.
"""

import asyncio
from typing import Self

from msgspec.structs import replace

from penstock.core.scram import METHOD, ScramClient
from penstock.errors import BadCredentials
from penstock.wire.mqtt.packets import Auth, ConnAck, Connect
from penstock.wire.mqtt.properties import PacketProperties
from penstock.wire.mqtt.reasons import ReasonCode


class Login:
    """A name and its password, which can be proven as often as it takes."""

    def __init__(self, user: str, password: str) -> None:
        self._user = user
        self._password = password

    @classmethod
    def make(cls, method: str, user: str | None, password: str | bytes | None) -> Self:
        """Check that name and password can be proven by this method.

        Raises:
            ValueError: they cannot.
        """
        if method.upper() != METHOD:
            raise ValueError(f"{method!r} is no method of authentication here: there is {METHOD}")
        if not user or not password:
            raise ValueError(f"{METHOD} needs a user and a password")
        try:
            login = cls(user, password.decode() if isinstance(password, bytes) else password)
        except UnicodeDecodeError:  # which would show the password
            raise ValueError(f"{METHOD} needs a password that is UTF-8") from None
        login.begin()
        return login

    def begin(self) -> "Proof":
        """Begin to prove it to somebody."""
        return Proof(ScramClient(self._user, self._password))


class Proof:
    """One exchange with a server; every step raises `BadCredentials` if the server cannot be trusted."""

    def __init__(self, scram: ScramClient) -> None:
        self._scram = scram

    def put_into(self, connect: Connect) -> Connect:
        """A CONNECT that begins it."""
        data = self._scram.begin()
        properties = replace(connect.properties, authentication_method=METHOD, authentication_data=data)
        return replace(connect, properties=properties)

    def first(self) -> Auth:
        """The AUTH that begins it on a connection that stands."""
        return _auth(ReasonCode.RE_AUTHENTICATE, self._scram.begin())

    async def answer(self, packet: Auth) -> Auth:
        """Answer the server's question; computing that takes a while, but holds nobody else up."""
        if packet.reason != ReasonCode.CONTINUE_AUTHENTICATION:
            raise BadCredentials("the server was content without a proof")
        proof = await asyncio.to_thread(self._scram.prove, _data(packet.properties))
        return _auth(ReasonCode.CONTINUE_AUTHENTICATION, proof)

    def check(self, packet: Auth | ConnAck) -> None:
        """Take the server's last word, which has its own proof."""
        if packet.reason != ReasonCode.SUCCESS:
            raise BadCredentials("the server asked once too often")
        self._scram.check(_data(packet.properties))


def _auth(reason: ReasonCode, data: bytes) -> Auth:
    return Auth(reason, PacketProperties(authentication_method=METHOD, authentication_data=data))


def _data(properties: PacketProperties) -> bytes:
    if properties.authentication_method != METHOD:  # MQTT-4.12.0-5
        raise BadCredentials(f"the server answered by the method {properties.authentication_method!r}")
    return properties.authentication_data or b""
