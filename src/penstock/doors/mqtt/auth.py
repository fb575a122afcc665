"""Enhanced authentication: AUTH packets until a client's identity is proven (MQTT 5 section 4.12).

A client names its method in CONNECT, authenticates before it is accepted, and again whenever it likes. The
contents of the packets belong to the method; core has the methods.
"""

from typing import TYPE_CHECKING

from penstock.core.access.access import Access, Exchange
from penstock.core.sessions.session import Session
from penstock.doors.mqtt.reason_codes import refusal_of
from penstock.errors import PenstockError, QuotaExceeded
from penstock.net.address_limits import AddressLimits
from penstock.wire.mqtt.packets import Auth, Connect
from penstock.wire.mqtt.properties import PacketProperties
from penstock.wire.mqtt.reasons import MqttWireError, ProtocolViolation, ReasonCode

if TYPE_CHECKING:
    from penstock.doors.mqtt.connect import ConnectHandler
    from penstock.doors.mqtt.connection import Connection


class AuthExchange:
    """Authentication exchange of one client, for as long as it is connected."""

    __slots__ = ("connect", "exchange", "method")

    def __init__(self, method: str, exchange: Exchange, connect: Connect) -> None:
        self.method = method
        self.exchange: Exchange | None = exchange  # while one is under way
        self.connect: Connect | None = connect  # until the client is accepted


class Authentication:
    """Takes the steps of every client's proof."""

    def __init__(self, admission: "ConnectHandler", access: Access, address_limits: AddressLimits) -> None:
        self._admission = admission
        self._access = access
        self._address_limits = address_limits

    def begin(self, connection: "Connection", packet: Connect, method: str) -> None:
        """A CONNECT that names a method: its data is the first step."""
        exchange = self._access.exchange(method)
        if exchange is None:
            self._admission.refuse(connection, ReasonCode.BAD_AUTHENTICATION_METHOD)  # MQTT-4.12.0-1
            return
        connection.proof = AuthExchange(method, exchange, packet)
        self._prove_first(connection, connection.proof, packet, packet.properties)

    def continue_exchange(self, connection: "Connection", packet: Auth) -> None:
        """Next step of a client that is not accepted yet."""
        proof = connection.proof
        if proof is None or proof.connect is None or packet.reason != ReasonCode.CONTINUE_AUTHENTICATION:
            raise ProtocolViolation("AUTH is not expected here")
        self._prove_first(connection, proof, proof.connect, packet.properties)

    def _prove_first(
        self, connection: "Connection", proof: AuthExchange, packet: Connect, given: PacketProperties
    ) -> None:
        try:
            user, response = self._step(connection, proof, given)
        except MqttWireError:
            raise
        except QuotaExceeded as error:
            self._admission.put_off(connection, ReasonCode.CONNECTION_RATE_EXCEEDED, str(error))
            return
        except PenstockError as error:
            self._admission.on_failure(connection, packet.client_id)
            self._admission.refuse(connection, refusal_of(error), str(error))  # MQTT-4.12.0-4
            return
        if proof.exchange is None:
            proof.connect = None
            self._admission.welcome(connection, packet, user, proof=response)

    def prove_again(self, connection: "Connection", packet: Auth, session: Session) -> None:
        """Step of a re-authentication, while everything else continues."""
        proof = connection.proof
        if proof is None:
            raise ProtocolViolation("AUTH without an authentication method")  # MQTT-4.12.0-7
        if packet.reason == ReasonCode.RE_AUTHENTICATE:
            proof.exchange = self._access.exchange(proof.method)
        elif packet.reason != ReasonCode.CONTINUE_AUTHENTICATION:
            raise ProtocolViolation("a client must not send AUTH with Success")
        try:
            user, response = self._step(connection, proof, packet.properties)
        except MqttWireError:
            raise
        except QuotaExceeded as error:
            connection.end(ReasonCode.CONNECTION_RATE_EXCEEDED, str(error))
            return
        except PenstockError as error:
            self._admission.on_failure(connection, session.client_id)
            connection.end(ReasonCode.NOT_AUTHORIZED, str(error))  # MQTT-4.12.1-2
            return
        if proof.exchange is None:
            if user != session.identity.user:
                connection.end(ReasonCode.NOT_AUTHORIZED, "re-authenticated as another user")
            else:
                connection.respond(_auth(ReasonCode.SUCCESS, proof.method, response))

    def _step(
        self, connection: "Connection", proof: AuthExchange, given: PacketProperties
    ) -> tuple[str | None, bytes]:
        """Respond to the client's data; after the last step the exchange is over and the user known.

        Raises:
            QuotaExceeded: too many wrong passwords from this address.
            PenstockError: the exchange has failed.
        """
        exchange = proof.exchange
        if exchange is None:
            raise ProtocolViolation("no authentication is under way")
        if given.authentication_method != proof.method:
            raise ProtocolViolation("another authentication method than before")  # MQTT-4.12.0-5, 4.12.1-1
        if not self._address_limits.may_try(connection.peer.host):
            raise QuotaExceeded("too many wrong passwords from this address")
        response = exchange.respond(given.authentication_data or b"")
        self._address_limits.forgive(connection.peer.host)
        if exchange.is_done:
            proof.exchange = None
        else:
            connection.respond(_auth(ReasonCode.CONTINUE_AUTHENTICATION, proof.method, response))
        return exchange.user, response


def _auth(reason: ReasonCode, method: str, data: bytes) -> Auth:
    return Auth(reason, PacketProperties(authentication_method=method, authentication_data=data or None))
