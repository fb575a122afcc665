"""Where the flags say that a server is."""

import pytest
import typer

from penstock.cli.connect import HttpServer, MqttServer


@pytest.mark.parametrize(
    ("server", "address"),
    [
        (HttpServer(), "http://127.0.0.1:8080"),
        (HttpServer(tls=True), "https://127.0.0.1:8443"),
        (HttpServer(host="::1", port=1), "http://[::1]:1"),
        (HttpServer(host="[::1]"), "http://[::1]:8080"),
        (HttpServer(address="https://far.example/below/"), "https://far.example:443/below"),
        (HttpServer(address="far.example"), "http://far.example:8080"),
        (HttpServer(address="far.example/below"), "http://far.example:8080/below"),
        (HttpServer(address="127.0.0.1:9090"), "http://127.0.0.1:9090"),
        (HttpServer(address="far.example:8443"), "https://far.example:8443"),
        (HttpServer(address="[::1]:443"), "https://[::1]:443"),
        (MqttServer(address="127.0.0.1:1883"), "mqtt://127.0.0.1:1883"),
        (MqttServer(address="127.0.0.1:2883"), "mqtt://127.0.0.1:2883"),
        (MqttServer(address="far.example:8883"), "mqtts://far.example:8883"),
        (MqttServer(address="far.example:8080"), "ws://far.example:8080/mqtt"),
        (MqttServer(address="far.example", websocket=True), "ws://far.example:8080/mqtt"),
        (MqttServer(), "mqtt://127.0.0.1:1883"),
        (MqttServer(tls=True, host="far.example"), "mqtts://far.example:8883"),
        (MqttServer(websocket=True), "ws://127.0.0.1:8080/mqtt"),
        (MqttServer(websocket=True, tls=True), "wss://127.0.0.1:8443/mqtt"),
        (MqttServer(websocket=True, port=80), "ws://127.0.0.1:80/mqtt"),
        (MqttServer(address="mqtt://far.example"), "mqtt://far.example:1883"),
        (MqttServer(address="mqtts://far.example"), "mqtts://far.example:8883"),
        (MqttServer(address="ws://far.example"), "ws://far.example:80/mqtt"),
        (MqttServer(address="wss://far.example/broker"), "wss://far.example:443/broker"),
    ],
)
def test_flags_and_addresses_name_a_place(server: HttpServer | MqttServer, address: str) -> None:
    assert str(server.endpoint) == address


@pytest.mark.parametrize(
    ("server", "told"),
    [
        (HttpServer(address="mqtt://x"), "write http://host:8080 or https://host:8443"),
        (HttpServer(address="http://x", port=1), "leave out --host, --port and --tls"),
        (HttpServer(address="http://a:b@x"), "see --user"),
        (HttpServer(address="http://x:port"), "not a valid address"),
        (HttpServer(address="ftp://here"), "not a valid address"),
        (HttpServer(address="here:port"), "not a valid address"),
        (MqttServer(address="here:1883/path"), "MQTT has no paths"),
        (MqttServer(address="http://x"), "mqtt://host:1883"),
        (MqttServer(address="mqtt://x/path"), "MQTT has no paths"),
        (MqttServer(address="mqtt://x", websocket=True), "write ws://host:8080"),
    ],
)
def test_what_is_no_place_is_told(server: HttpServer | MqttServer, told: str) -> None:
    with pytest.raises(typer.BadParameter, match=told):
        _ = server.endpoint
