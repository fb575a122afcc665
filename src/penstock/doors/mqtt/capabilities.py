"""Capabilities of the server: announced in CONNACK, and enforced."""

from penstock.common.topics import SHARE_PREFIX
from penstock.doors.mqtt.settings import MqttSettings
from penstock.wire.mqtt import packets
from penstock.wire.mqtt.abilities import Abilities
from penstock.wire.mqtt.properties import PacketProperties
from penstock.wire.mqtt.reasons import ReasonCode


def abilities_of(settings: MqttSettings) -> Abilities:
    """Publishes that are accepted."""
    return Abilities(settings.maximum_qos, settings.retain_available, settings.check_payload_format)


def announcement(settings: MqttSettings, limit_bytes: int) -> PacketProperties:
    """Properties of CONNACK for every MQTT 5 client; defaults of MQTT are left out."""
    return PacketProperties(
        receive_maximum=settings.receive_maximum,
        topic_alias_maximum=settings.topic_alias_maximum or None,
        maximum_packet_size=limit_bytes,
        maximum_qos=settings.maximum_qos if settings.maximum_qos < 2 else None,
        retain_available=_unless(settings.retain_available),
        wildcard_subscription_available=_unless(settings.wildcard_subscriptions),
        shared_subscription_available=_unless(settings.shared_subscriptions),
        subscription_ids_available=_unless(settings.subscription_identifiers),
    )


def _unless(is_available: bool) -> int | None:
    return None if is_available else 0


def will_refusal(abilities: Abilities, will: packets.Will) -> ReasonCode | None:
    """Why a will could not be published as its client wants it."""
    if will.qos > abilities.maximum_qos:
        return ReasonCode.QOS_NOT_SUPPORTED  # MQTT-3.2.2-12
    if will.retain and not abilities.retain:
        return ReasonCode.RETAIN_NOT_SUPPORTED  # MQTT-3.2.2-13
    return None


def subscription_refusal(settings: MqttSettings, filter: str, identifier: int) -> ReasonCode | None:
    """Why a subscription is of a kind that is not to be had here."""
    is_shared = filter.startswith(SHARE_PREFIX)
    if identifier and not settings.subscription_identifiers:
        return ReasonCode.SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED
    if is_shared and not settings.shared_subscriptions:
        return ReasonCode.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED
    if not settings.wildcard_subscriptions and ("+" in filter or "#" in filter):
        return ReasonCode.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED
    return None
