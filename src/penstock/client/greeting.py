"""The first packets of a connection: CONNECT, what there is to prove, and a CONNACK that says yes."""

from penstock.client.authentication import Login, Proof
from penstock.client.errors import ConnectionLost, ConnectionRefused, describe
from penstock.client.stream import PacketStream
from penstock.errors import BadCredentials
from penstock.wire.mqtt.packets import Auth, ConnAck, Connect, Packet, Version
from penstock.wire.mqtt.reasons import MqttWireError, ReasonCode, ReturnCode

_RETURN_CODES = {
    ReturnCode.UNACCEPTABLE_PROTOCOL_VERSION: ReasonCode.UNSUPPORTED_PROTOCOL_VERSION,
    ReturnCode.IDENTIFIER_REJECTED: ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
    ReturnCode.SERVER_UNAVAILABLE: ReasonCode.SERVER_UNAVAILABLE,
    ReturnCode.BAD_USER_NAME_OR_PASSWORD: ReasonCode.BAD_USER_NAME_OR_PASSWORD,
    ReturnCode.NOT_AUTHORIZED: ReasonCode.NOT_AUTHORIZED,
}


async def greet(stream: PacketStream, connect: Connect, login: Login | None) -> ConnAck:
    """Send CONNECT, prove who we are if there is a login, and take a CONNACK that says yes.

    Raises:
        ConnectionRefused: there is none, or the server could not prove that it knows the password.
    """
    if login is None:
        await stream.send(connect)
        return _accepted(await _receive(stream), connect.version)
    try:
        return await _prove(stream, connect, login.begin())
    except BadCredentials as error:
        raise ConnectionRefused(f"authentication failed: {error}") from None


async def _prove(stream: PacketStream, connect: Connect, proof: Proof) -> ConnAck:
    await stream.send(proof.put_into(connect))
    packet = await _receive(stream)
    if isinstance(packet, Auth):
        await stream.send(await proof.answer(packet))
        packet = await _receive(stream)
    connack = _accepted(packet, connect.version)
    proof.check(connack)
    return connack


async def _receive(stream: PacketStream) -> Packet:
    try:
        return await stream.receive()
    except ConnectionLost:
        raise ConnectionRefused("the server closed the connection without an answer") from None
    except MqttWireError as error:
        raise ConnectionRefused(f"the server's answer is not MQTT: {error}") from None


def _accepted(packet: Packet, version: Version) -> ConnAck:
    if not isinstance(packet, ConnAck):
        raise ConnectionRefused(f"the server answered with {type(packet).__name__}")
    reason = packet.reason
    if reason and version is Version.V311:
        known = reason in _RETURN_CODES
        reason = _RETURN_CODES[ReturnCode(reason)] if known else ReasonCode.UNSPECIFIED_ERROR
    if reason:
        raise ConnectionRefused(describe(reason, packet.properties.reason_string), reason)
    return packet
