"""Payload preview: detected kind, and length shown."""

import pytest

from penstock.dashboard.pages.payloads import (
    LINE_CHARACTERS,
    SHOWN_BYTES,
    SHOWN_HEX_BYTES,
    PayloadKind,
    one_line,
    preview,
)


def test_json_has_a_member_a_line_and_numbers_as_they_were_written() -> None:
    shown = preview(b'{"celsius":64.30,"big":12345678901234567890123}')
    assert (shown.kind, shown.is_cut) == (PayloadKind.JSON, False)
    assert shown.text.split("\n") == ["{", '  "celsius": 64.30,', '  "big": 12345678901234567890123', "}"]


def test_text_is_shown_as_it_is() -> None:
    shown = preview("<b>wärm</b> *not bold*\nand more".encode())
    assert (shown.kind, shown.text) == (PayloadKind.TEXT, "<b>wärm</b> *not bold*\nand more")


def test_bytes_are_shown_in_hexadecimal_with_what_is_text_beside_them() -> None:
    shown = preview(b"\x00\xffAB" + bytes(14))
    assert shown.kind is PayloadKind.BYTES
    first, second = shown.text.split("\n")
    assert first.startswith("000000  00 ff 41 42 00") and first.endswith("..AB............")
    assert second.startswith("000010  00 00") and second.endswith("  ..")


def test_an_empty_payload_has_its_own_kind() -> None:
    assert preview(b"") == type(preview(b""))(PayloadKind.EMPTY, "", 0, is_cut=False)
    assert one_line(b"") == ""


@pytest.mark.parametrize(
    ("payload", "kind"),
    [
        (b"x" * (SHOWN_BYTES + 1), PayloadKind.TEXT),
        ("ä".encode() * SHOWN_BYTES, PayloadKind.TEXT),  # the cut may go through a character
        (b"y" + "ä".encode() * SHOWN_BYTES, PayloadKind.TEXT),
        (b"[" + b"1," * SHOWN_BYTES + b"1]", PayloadKind.TEXT),  # too long to be formatted
        (b"\xff" * (SHOWN_HEX_BYTES + 1), PayloadKind.BYTES),
    ],
)
def test_a_long_payload_is_cut_and_keeps_its_true_size(payload: bytes, kind: PayloadKind) -> None:
    shown = preview(payload)
    assert (shown.kind, shown.is_cut, shown.size_bytes) == (kind, True, len(payload))
    assert len(shown.text) <= 5 * SHOWN_BYTES


def test_deep_json_does_no_harm() -> None:
    assert preview(b"[" * 10_000).kind is PayloadKind.TEXT


def test_invisible_characters_are_written_as_numbers() -> None:
    turned = "safe\u202egpj.exe"
    assert preview(turned.encode()).text == "safe\\u202egpj.exe"
    assert one_line(b"a\x1b[31mred") == "a\\u001b[31mred"


def test_one_line_is_one_line_and_says_when_there_is_more() -> None:
    assert one_line(b'{\n  "a": 1\n}') == '{ "a": 1 }'
    long = one_line(b"word " * 1000)
    assert long.endswith(" …") and len(long) <= LINE_CHARACTERS + 2
    assert one_line(bytes(range(256))).endswith(" …")
    assert one_line(b"\x00\x01") == "00 01"
