"""CONNECT: authentication, negotiation of options, and CONNACK.

A client with a verified certificate or a recently verified password is accepted at once; other passwords
wait for their turn (`password_checks.py`); exchanges of several packets are in `auth.py`.
"""

import asyncio
import secrets
from functools import partial
from typing import TYPE_CHECKING

import structlog
from msgspec.structs import replace

from penstock.common.topics import is_bridge_state
from penstock.core.access.acl import is_level
from penstock.core.access.identity import Identity
from penstock.core.broker import Arrival
from penstock.doors.mqtt.auth import Authentication
from penstock.doors.mqtt.capabilities import will_refusal
from penstock.doors.mqtt.encodings import encoding_on_wire
from penstock.doors.mqtt.reason_codes import RETURN_CODES, encode_within, in_words, refusal_of
from penstock.errors import NotAuthorized, PenstockError, QuotaExceeded
from penstock.model import Door, Properties, Will
from penstock.net.password_checks import TooManyWaiting
from penstock.net.read_pause import COMMIT
from penstock.runs import NEVER
from penstock.wire.mqtt import packets
from penstock.wire.mqtt.decode import CONNACK_REASONS
from penstock.wire.mqtt.encode import encode_packet
from penstock.wire.mqtt.packets import Auth, ConnAck, Connect, Disconnect, Version
from penstock.wire.mqtt.properties import PacketProperties
from penstock.wire.mqtt.reader import Item
from penstock.wire.mqtt.reasons import MqttWireError, ProtocolViolation, ReasonCode
from penstock.wire.mqtt.run_reader import SOON

if TYPE_CHECKING:
    from penstock.doors.mqtt.connection import Connection
    from penstock.doors.mqtt.door import MqttDoor

log = structlog.get_logger("penstock.mqtt")

KEEP_ALIVE_FACTOR = 1.5
NO_EXPIRY = 0xFFFFFFFF
CLIENT_ID_PLACE = "%c"


class ConnectHandler:
    """Lets clients in, or says why not."""

    def __init__(self, door: "MqttDoor") -> None:
        self._door = door
        self._broker = door.broker
        self.authentication = Authentication(self, door.broker.access, door.address_limits)
        self._checks = door.password_checks
        self._checking: dict[Connection, asyncio.Task[None]] = {}

    def take(self, connection: "Connection", packet: Item) -> None:
        """Act on a packet before acceptance: CONNECT, then AUTH if its method needs that."""
        self._door.counters.control_packets_received += 1
        connection.is_undecided = True
        if connection.proof is not None:
            self._take_proof(connection, packet)
        elif isinstance(packet, Connect):
            connection.version = packet.version
            self._admit(connection, packet)
        else:
            connection.is_closing = True
            connection.abort()  # MQTT-3.1.0-1
        if connection.proof is not None and connection.is_stranger and not connection.is_welcome:
            connection.is_undecided = False  # the next step is the client's

    def _take_proof(self, connection: "Connection", packet: Item) -> None:
        """A client that authenticates may send nothing else meanwhile (MQTT-3.1.2-30)."""
        try:
            if isinstance(packet, Auth):
                self.authentication.continue_exchange(connection, packet)
            elif isinstance(packet, Disconnect):
                connection.leave()
            else:
                raise ProtocolViolation("AUTH is expected here")
        except MqttWireError as error:
            connection.on_wire_error(error)

    def _admit(self, connection: "Connection", packet: Connect) -> None:
        """Decide about a CONNECT: at once where that is possible."""
        connection.explains = packet.properties.request_problem_information != 0
        connection.wants_details = packet.properties.request_problem_information == 1
        connection.limit_bytes = packet.properties.maximum_packet_size or 0
        connection.is_bridge = packet.is_bridge
        if connection.refusal is not None:  # the address limits refused it on arrival
            self.refuse(connection, connection.refusal)
        elif packet.properties.authentication_method is not None:
            self.authentication.begin(connection, packet, packet.properties.authentication_method)
        elif connection.peer.certificate_name is not None and self._door.is_named_by_certificate:
            self.welcome(connection, packet, connection.peer.certificate_name, is_certified=True)
        else:
            self._check_password(connection, packet)

    # Passwords

    def _check_password(self, connection: "Connection", packet: Connect) -> None:
        verdict = self._broker.access.verify_now(packet.user_name, packet.password)
        if verdict is None:
            self._checking[connection] = self._door.loop.create_task(self._verify(connection, packet))
        else:
            self._decide(connection, packet, verdict)

    def on_lost(self, connection: "Connection") -> None:
        """Cancel the check of a client that has disconnected."""
        check = self._checking.pop(connection, None)
        if check is not None:
            check.cancel()

    async def _verify(self, connection: "Connection", packet: Connect) -> None:
        try:
            verdict = await self._checks.verify(packet.user_name, packet.password, connection.peer.host)
        except QuotaExceeded as error:
            self.put_off(connection, ReasonCode.CONNECTION_RATE_EXCEEDED, str(error))
        except TooManyWaiting:
            self.put_off(connection, ReasonCode.SERVER_BUSY, "too many password checks are waiting")
        except Exception:  # an error must neither admit a client nor leave it waiting
            log.exception("password not checked", peer=str(connection.peer))
            self.refuse(connection, ReasonCode.SERVER_UNAVAILABLE)
        else:
            if connection.is_stranger:
                self._decide(connection, packet, verdict)
        finally:
            self._checking.pop(connection, None)

    def put_off(self, connection: "Connection", reason: ReasonCode, words: str) -> None:
        """Refuse a client for now; beyond a limit of open refusals its connection closes without CONNACK."""
        if self._door.may_wait_for_refusal(connection, reason):
            self.refuse(connection, reason, words)

    def _decide(self, connection: "Connection", packet: Connect, is_verified: bool) -> None:
        if is_verified:
            self.welcome(connection, packet, packet.user_name)
        else:
            self.on_failure(connection, packet.client_id, packet.user_name)
            self.refuse(connection, ReasonCode.BAD_USER_NAME_OR_PASSWORD)

    def on_failure(self, connection: "Connection", client_id: str, user: str | None = None) -> None:
        """Refuse wrong credentials."""
        self._door.counters.authentications_failed += 1
        self._door.note("credentials refused", connection, client=client_id, user=user or "")
        self._door.broker.audit.record_login(user, Door.MQTT, connection.peer, refusal="wrong credentials")

    # The response

    def welcome(
        self,
        connection: "Connection",
        packet: Connect,
        user: str | None,
        *,
        proof: bytes | None = None,
        is_certified: bool = False,
    ) -> None:
        """Accept an authenticated client, if its options can be granted."""
        refusal = self._refusal(packet)
        if refusal is not None:
            self.refuse(connection, refusal)
            return
        identity = Identity(user, packet.client_id or f"auto-{secrets.token_hex(8)}", is_certified)
        try:
            self._let_in(connection, packet, identity, proof)
        except PenstockError as error:
            self._door.counters.actions_forbidden += isinstance(error, NotAuthorized)  # its will
            self._door.note(
                "connection refused", connection, str(error), client=packet.client_id, user=user or ""
            )
            self.refuse(connection, refusal_of(error), str(error))

    def _refusal(self, packet: Connect) -> ReasonCode | None:
        if not packet.client_id and not packet.clean_start and packet.version is Version.V311:
            return ReasonCode.CLIENT_IDENTIFIER_NOT_VALID  # MQTT-3.1.3-8
        will = packet.will
        if will is None:
            return None
        if self._door.abilities.misses_format(_properties(will), will.payload):
            return ReasonCode.PAYLOAD_FORMAT_INVALID
        return will_refusal(self._door.abilities, will)

    def _let_in(
        self, connection: "Connection", packet: Connect, identity: Identity, proof: bytes | None
    ) -> None:
        given = packet.properties
        will = self._will(connection, packet, identity)
        self._broker.check_owner(identity)
        arrival = Arrival(
            identity,
            Door.MQTT,
            packet.clean_start,
            _expiry(packet),
            min(given.receive_maximum or 65_535, self._door.settings.max_inflight),
            will,
            (packet.version, connection.limit_bytes),
        )
        welcome = self._welcome_packet(connection, packet, identity, proof)
        if welcome is None:
            self.refuse(connection, ReasonCode.PACKET_TOO_LARGE)
            return
        connack = encode_packet(welcome, packet.version)  # before any effect that it reports
        self._door.look_for_fights(connection, identity.client_id)
        reencode = partial(
            encoding_on_wire,
            version=packet.version,
            limit_bytes=connection.limit_bytes,
            marks=self._door.marks,
        )
        session, is_present = self._broker.connect(arrival, connection, reencode)
        if is_present and not packet.is_v31:  # the flag is reserved there
            connack = encode_packet(replace(welcome, session_present=True), packet.version)
        aliases = min(given.topic_alias_maximum or 0, self._door.settings.outgoing_topic_aliases)
        keep_alive_s = self._keep_alive(packet) * KEEP_ALIVE_FACTOR

        def respond(failure: Exception | None) -> None:
            if connection.is_closing:
                self._broker.disconnect(session, connection, is_graceful=False)
            elif failure is not None:  # what CONNACK promises might be forgotten with the server
                expiry = None if is_present else 0.0
                self._broker.disconnect(session, connection, is_graceful=True, expiry=expiry)
                self.refuse(connection, ReasonCode.QUOTA_EXCEEDED, str(failure))
            else:
                connection.accept(session, connack, keep_alive_s, aliases)

        connection.is_welcome = True
        self._broker.when_session_stored(session, respond)
        if connection.is_stranger:
            connection.read_pause.pause(COMMIT)

    def _will(self, connection: "Connection", packet: Connect, identity: Identity) -> Will | None:
        """Return the will of a client.

        A bridge announces its state by its will, and would never connect if a server refused that: without
        the right to publish it, the bridge connects without a will.

        Raises:
            PenstockError: the will could not be published.
        """
        will = None if packet.will is None else _will(packet.will)
        if will is not None:
            try:
                self._broker.check_will(identity, will)
            except NotAuthorized as error:
                if not is_bridge_state(will.topic):
                    raise
                self._door.note("will ignored", connection, str(error), client=packet.client_id)
                return None
        return will

    def _welcome_packet(
        self, connection: "Connection", packet: Connect, identity: Identity, proof: bytes | None
    ) -> ConnAck | None:
        """The CONNACK for a session that is not there yet; None if the client takes no packet as large."""
        if packet.version is Version.V311:
            return ConnAck()
        given, keep_alive, expiry = packet.properties, self._keep_alive(packet), _expiry(packet)
        granted = min(expiry, self._broker.settings.sessions.max_expiry_s)
        properties = replace(
            self._door.announcement,
            assigned_client_id=None if packet.client_id else identity.client_id,
            server_keep_alive=None if keep_alive == packet.keep_alive else keep_alive,
            session_expiry=None if granted == expiry else int(granted),
            response_information=self._response_topics(given, identity),
            authentication_method=given.authentication_method,
            authentication_data=proof,
        )
        for welcome in (ConnAck(properties=properties), ConnAck(properties=_without_advice(properties))):
            limit = connection.limit_bytes
            if not limit or len(encode_packet(welcome, packet.version)) <= limit:
                return welcome
        return None

    def _keep_alive(self, packet: Connect) -> int:
        """Return the requested keep alive, or the most that is granted; 3.1.1 clients cannot be informed."""
        limit = self._door.settings.max_keep_alive_s
        if not limit or packet.version is Version.V311:
            return packet.keep_alive
        return min(packet.keep_alive or limit, limit)

    def _response_topics(self, given: PacketProperties, identity: Identity) -> str | None:
        """Return the response information for the client; empty if it could not subscribe to it."""
        pattern = self._door.settings.response_topics
        if not given.request_response_information or not pattern:
            return None  # MQTT-3.1.2-28
        if CLIENT_ID_PLACE in pattern and not is_level(identity.client_id):
            return None
        topics = pattern.replace(CLIENT_ID_PLACE, identity.client_id)
        filter = f"{topics}/#"
        is_useful = self._broker.is_filter(filter) and self._broker.access.may_subscribe(identity, filter)
        return topics if is_useful else None

    def refuse(self, connection: "Connection", reason: ReasonCode, words: str = "") -> None:
        """Refuse a CONNECT with a reason, and close."""
        self._door.counters.connections_refused += 1
        code = reason if connection.version is Version.V5 else RETURN_CODES.get(reason)
        if code is None:
            connection.leave()
            return
        refusal = in_words(ConnAck(False, code), words) if words else ConnAck(False, code)
        connack = encode_within(refusal, connection.version, connection.limit_bytes)
        connection.turn_away(connack or b"")

    def refuse_bytes(self, connection: "Connection", error: MqttWireError, *, is_greeted: bool) -> None:
        """Close after a malformed first packet; respond if it was a CONNECT."""
        if is_greeted:
            is_known = error.reason in CONNACK_REASONS
            self.refuse(connection, error.reason if is_known else ReasonCode.PROTOCOL_ERROR)
        else:  # no CONNECT at all
            self._door.counters.connections_refused += 1
            connection.leave()


def _without_advice(properties: PacketProperties) -> PacketProperties:
    """The same without what a client can do without."""
    return replace(properties, response_information=None)


def _expiry(packet: Connect) -> float:
    """Session expiry interval; 3.1.1 has only "forever" and "not at all"."""
    if packet.version is Version.V311:
        return 0.0 if packet.clean_start else float("inf")
    expiry = packet.properties.session_expiry or 0
    return float("inf") if expiry == NO_EXPIRY else float(expiry)


def _will(will: packets.Will) -> Will:
    given = will.properties
    ttl = NEVER if given.message_expiry is None else float(given.message_expiry) or SOON
    delay = float(given.will_delay or 0)
    return Will(will.topic, will.payload, will.qos, will.retain, _properties(will), ttl, delay)


def _properties(will: packets.Will) -> Properties:
    given = will.properties
    return Properties(
        given.content_type,
        given.correlation_data,
        given.response_topic,
        given.payload_format,
        None,
        given.user,
    )
