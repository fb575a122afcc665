"""What the MQTT codec offers to the rest of the house."""

from types import ModuleType

from penstock.wire import mqtt
from penstock.wire.mqtt import packets, reasons


def test_the_public_names_are_exactly_those_listed() -> None:
    public = {
        name
        for name, value in vars(mqtt).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert public == set(mqtt.__all__)
    assert len(mqtt.__all__) == len(set(mqtt.__all__))


def test_every_packet_and_every_reason_is_public_and_explained() -> None:
    for module in (packets, reasons):
        for name, value in vars(module).items():
            if isinstance(value, type) and value.__module__ == module.__name__:
                assert name in mqtt.__all__
                assert value.__dict__.get("__doc__"), name
