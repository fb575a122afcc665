"""SCRAM messages that were tampered with: nobody comes in, and only one kind of error goes out."""

import re
from base64 import b64decode
from binascii import Error
from random import Random

import pytest

from penstock.common.scram import MAX_MESSAGE_BYTES, ScramClient, ScramServer, make_keys
from penstock.errors import BadCredentials
from tests.fuzz.damage import damaged
from tests.fuzz.verdict import judge

PASSWORD = "pencil"
KEYS = make_keys(PASSWORD, iterations=4_096)
SAMPLES = (
    b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
    b"y,,n=user,r=rOprNGfwEbeRWgbNEkqO",
    b"n,a=user,n=user,r=rOprNGfwEbeRWgbNEkqO,x=extension",
    b"n,,n=us=2Cer=3D,r=r",
    "n,,n=us\u00aaer\u2168,r=r".encode(),
    b"p=tls-unique,,n=user,r=r",
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    b"r=rOprNGfwEbeRWgbNEkqO3rfcNHYJY1ZVvWVs7j,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
    b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    b"",
)


def spoilt(data: bytes, dice: Random) -> bytes:
    """A message that does not say the same any more."""
    while meaning(changed := damaged(data, dice, SAMPLES)) == meaning(data):
        pass
    return changed


def meaning(data: bytes) -> tuple[bytes, bytes]:
    """Base64 can be written in several ways, because its last character may have bits to spare."""
    rest, _, last = data.rpartition(b",p=") if b",p=" in data else (b"", b"", data[2:])
    try:
        return rest, b64decode(last)
    except Error:
        return data, b""


def test_first_messages_are_answered_or_refused(dice: Random, many: int) -> None:
    def parse(data: bytes) -> None:
        server = ScramServer(lambda name: KEYS)
        assert re.fullmatch(rb"(r=[^,]+,s=[A-Za-z0-9+/=]+,i=4096)?", server.respond(data))
        assert not server.is_done and server.user is None

    def make(dice: Random) -> bytes:
        sample = dice.choice(SAMPLES)
        return damaged(sample, dice, SAMPLES) if dice.random() < 0.8 else sample

    tally = judge(parse, make, dice, many, steps_per_unit=40, error=BadCredentials)
    assert tally.taken > many // 20 and tally.refused > many // 10


def test_a_proof_that_was_changed_proves_nothing(dice: Random, scale: int) -> None:
    """An exchange of which one message was tampered with on its way ends in a refusal."""
    client = ScramClient("user", PASSWORD, "clients")
    first = client.begin()
    honest = ScramServer(lambda name: KEYS, "servers")
    proof = client.prove(honest.respond(first))
    honest.respond(proof)
    assert honest.user == "user"

    def parse(data: bytes) -> None:
        server = ScramServer(lambda name: KEYS, "servers")
        server.respond(first)
        try:
            server.respond(data)
        finally:
            assert not server.is_done

    tally = judge(parse, lambda dice: spoilt(proof, dice), dice, 10_000 * scale, steps_per_unit=40)
    assert tally.taken == 0


def test_an_exchange_that_failed_stays_failed(dice: Random, scale: int) -> None:
    client = ScramClient("user", PASSWORD, "clients")
    first = client.begin()
    proof = client.prove(ScramServer(lambda name: KEYS, "servers").respond(first))

    def parse(data: bytes) -> None:
        server = ScramServer(lambda name: KEYS, "servers")
        try:
            server.respond(data)
        except BadCredentials:
            with pytest.raises(BadCredentials):
                server.respond(first)
            with pytest.raises(BadCredentials):
                server.respond(proof)
            assert server.user is None
            raise

    judge(parse, lambda dice: spoilt(first, dice), dice, 5_000 * scale, steps_per_unit=40)


def test_clients_believe_no_server_that_changed_its_last_word(dice: Random, scale: int) -> None:
    client = ScramClient("user", PASSWORD, "clients")
    server = ScramServer(lambda name: KEYS, "servers")
    last = server.respond(client.prove(server.respond(client.begin())))
    client.check(last)

    def parse(data: bytes) -> None:
        client.check(data)
        assert data.startswith(b"v=") and b64decode(data[2:].partition(b",")[0]) == b64decode(last[2:])

    tally = judge(parse, lambda dice: spoilt(last, dice), dice, 10_000 * scale, steps_per_unit=40)
    assert tally.refused > 9_000 * scale


def test_clients_take_what_a_server_asks_or_refuse_it(dice: Random, scale: int) -> None:
    question = ScramServer(lambda name: KEYS, "servers").respond(ScramClient("user", "x", "clients").begin())

    def make(dice: Random) -> bytes:
        while b"i=4096" not in (data := spoilt(question, dice)) and dice.random() < 0.9:
            pass
        return re.sub(rb"i=[1-9]\d{4,}", b"i=9999", data)  # more would only take longer

    def parse(data: bytes) -> None:
        ScramClient("user", "x", "clients").prove(data)

    judge(parse, make, dice, 500 * scale, steps_per_unit=40, error=BadCredentials)


def test_long_messages_take_steps_in_proportion(dice: Random) -> None:
    """Patterns that could be matched in many ways would take for ever."""
    fillers = (b",x=y", b"=2C", b"A", b"r=", b",", b"=", b"AAAA", b"n=")

    def make(dice: Random) -> bytes:
        start = dice.choice(SAMPLES)
        return (start + dice.choice(fillers) * MAX_MESSAGE_BYTES)[
            : MAX_MESSAGE_BYTES - dice.randrange(4)
        ] + b"!"

    judge(lambda data: ScramServer(lambda name: KEYS).respond(data), make, dice, 500, steps_per_unit=40)
