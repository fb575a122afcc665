"""SCRAM-SHA-256: the example of RFC 7677, both sides joined in memory, and everything that is not SCRAM."""

import base64
import hashlib
import hmac
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.common.scram import (
    FEWEST_ITERATIONS,
    ITERATIONS,
    MAX_MESSAGE_BYTES,
    MAX_NAME_BYTES,
    MOST_ITERATIONS,
    Decoys,
    ScramClient,
    ScramKeys,
    ScramServer,
    make_keys,
    prepare,
)
from penstock.errors import BadCredentials

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
PENCIL = make_keys("pencil", FEWEST_ITERATIONS, SALT)
CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"

# RFC 7677 section 3
CLIENT_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="

DECOYS = Decoys(b"secret", [PENCIL])
USERS = {
    "user": PENCIL,
    "a,b=c": PENCIL,
    "=2C": PENCIL,
    "Zo\u00eb": PENCIL,
}


def find_keys(name: str) -> ScramKeys:
    return USERS.get(name) or DECOYS.keys_for(name)


def server() -> ScramServer:
    """A server that chooses the nonce of the example."""
    return ScramServer(find_keys, SERVER_NONCE)


def client(user: str = "user", password: str = "pencil") -> ScramClient:
    """A client that chooses the nonce of the example."""
    return ScramClient(user, password, CLIENT_NONCE)


def come_in(server: ScramServer, client: ScramClient) -> str | None:
    """Carry messages to and fro, and tell who came in."""
    question = server.respond(client.begin())
    assert (server.is_done, server.user) == (False, None)
    client.check(server.respond(client.prove(question)))
    assert server.is_done
    return server.user


def signed(first: bytes, question: bytes, unproven: bytes, keys: ScramKeys = PENCIL) -> bytes:
    """A last message of a client that knows the password, whatever else it says."""
    bare = re.sub(rb"^[^,]*,[^,]*,", b"", first)
    messages = b",".join((bare, question, unproven))
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", keys.salt, keys.iterations)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    signature = hmac.digest(hashlib.sha256(client_key).digest(), messages, "sha256")
    proof = bytes(left ^ right for left, right in zip(client_key, signature, strict=True))
    return unproven + b",p=" + base64.b64encode(proof)


# The example


def test_a_server_says_what_the_rfc_says() -> None:
    exchange = server()
    assert exchange.method == "SCRAM-SHA-256"
    assert exchange.respond(CLIENT_FIRST) == SERVER_FIRST
    assert exchange.respond(CLIENT_FINAL) == SERVER_FINAL
    assert (exchange.is_done, exchange.user) == (True, "user")


def test_a_client_says_what_the_rfc_says() -> None:
    exchange = client()
    assert exchange.begin() == CLIENT_FIRST
    assert exchange.prove(SERVER_FIRST) == CLIENT_FINAL
    exchange.check(SERVER_FINAL)


def test_a_client_may_let_the_server_speak_first() -> None:
    exchange = server()
    assert exchange.respond(b"") == b""
    assert exchange.respond(CLIENT_FIRST) == SERVER_FIRST
    assert exchange.respond(CLIENT_FINAL) == SERVER_FINAL


# Both sides


def test_every_exchange_has_nonces_of_its_own() -> None:
    first, second = ScramClient("user", "pencil").begin(), ScramClient("user", "pencil").begin()
    assert first != second
    assert ScramServer(find_keys).respond(first) != ScramServer(find_keys).respond(first)
    assert come_in(ScramServer(find_keys), ScramClient("user", "pencil")) == "user"


def test_new_keys_have_a_salt_of_their_own_and_cost_what_they_should() -> None:
    first, second = make_keys("pencil"), make_keys("pencil")
    assert first.iterations == second.iterations == ITERATIONS
    assert first.salt != second.salt
    assert len(first.salt) == 16
    assert first.stored_key != second.stored_key


@pytest.mark.parametrize("name", ["a,b=c", "=2C", "Zo\u00eb"])
def test_any_name_travels_unharmed(name: str) -> None:
    assert come_in(server(), client(name)) == name


def test_names_and_passwords_that_look_the_same_are_the_same() -> None:
    assert come_in(server(), client("Zoe\u0308", "pen\u00adcil")) == "Zo\u00eb"
    assert make_keys("pen\u00adcil", FEWEST_ITERATIONS, SALT) == PENCIL


def test_a_server_prepares_the_name_of_a_client_that_does_not() -> None:
    exchange = server()
    first = "n,,n=Zoe\u0308,r=x".encode()
    question = exchange.respond(first)
    exchange.respond(signed(first, question, b"c=biws,r=x" + SERVER_NONCE.encode()))
    assert exchange.user == "Zo\u00eb"


@pytest.mark.parametrize(("user", "password"), [("user", "Pencil"), ("nobody", "pencil"), ("User", "pencil")])
def test_a_wrong_password_and_an_unknown_name_fail_at_the_end_and_alike(user: str, password: str) -> None:
    exchange, other = server(), client(user, password)
    question = exchange.respond(other.begin())
    with pytest.raises(BadCredentials, match=r"^a wrong password, or no such user$"):
        exchange.respond(other.prove(question))
    assert (exchange.is_done, exchange.user) == (False, None)


def test_keys_that_are_replaced_during_an_exchange_let_nobody_in() -> None:
    users = {"user": PENCIL}
    exchange, other = ScramServer(lambda name: users[name]), client()
    answer = other.prove(exchange.respond(other.begin()))
    users["user"] = make_keys("other", FEWEST_ITERATIONS)
    with pytest.raises(BadCredentials):
        exchange.respond(answer)
    assert exchange.user is None


def test_a_server_that_does_not_know_the_password_is_found_out() -> None:
    exchange = client()
    exchange.prove(SERVER_FIRST)
    for data in (SERVER_FINAL.replace(b"6", b"7"), b"e=other-error", b"v=", b"v=AAAA", b"", SERVER_FIRST):
        with pytest.raises(BadCredentials):
            exchange.check(data)


def test_a_server_proves_nothing_before_it_has_asked() -> None:
    with pytest.raises(BadCredentials):
        client().check(SERVER_FINAL)


def test_a_client_answers_one_question() -> None:
    exchange = client()
    exchange.prove(SERVER_FIRST)
    with pytest.raises(BadCredentials, match="once too often"):
        exchange.prove(SERVER_FIRST)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"i=4096", b"i=4095"),
        (b"i=4096", b"i=%d" % (MOST_ITERATIONS + 1)),
        (b"i=4096", b"i=04096"),
        (b"i=4096", b"i=-4096"),
        (b"i=4096", b"i=99999999999999999999"),
        (b"i=4096", "i=\u0664\u0660\u0669\u0666".encode()),
        (b"r=rOpr", b"r=sOpr"),
        (SERVER_NONCE.encode(), b""),
        (b",s=W22Z", b",s=W2 Z"),
        (b"gQ==", b"gQ="),
        (b"gQ==", b"gQAA=="),
        (b"s=W22ZaJ0SNY7soEsUEjb6gQ==", b"s="),
        (b"r=", b"m=x,r="),
        (b"4096", b"4096,m=x"),
        (b"4096", b"4096,"),
        (b"4096", b"4096\n"),
        (b"r=", b"\xff="),
    ],
)
def test_a_question_that_is_none_gets_no_proof(old: bytes, new: bytes) -> None:
    assert old in SERVER_FIRST
    with pytest.raises(BadCredentials):
        client().prove(SERVER_FIRST.replace(old, new, 1))


def test_what_later_versions_add_is_ignored_but_signed() -> None:
    exchange, other = server(), client()
    first = other.begin() + b",x=new,y=z=,Z=\xc3\xab"
    question = exchange.respond(first)
    answer = signed(first, question, b"c=biws,r=" + (CLIENT_NONCE + SERVER_NONCE).encode() + b",x=y")
    assert exchange.respond(answer).startswith(b"v=")
    other.prove(SERVER_FIRST + b",x=y")
    with pytest.raises(BadCredentials):
        other.check(SERVER_FINAL)  # which was not computed over what was added


@pytest.mark.parametrize("password", ["", "\x07", "\u06271"])
def test_a_password_that_cannot_be_prepared_is_an_error(password: str) -> None:
    with pytest.raises(ValueError):
        make_keys(password)
    with pytest.raises(ValueError):
        client(password=password)
    with pytest.raises(ValueError):
        client(user=password)


# What the header may say


@pytest.mark.parametrize("header", [b"n,,", b"y,,", b"n,a=user,", b"y,a=user,"])
def test_headers_without_channel_binding_are_taken(header: bytes) -> None:
    exchange = server()
    first = header + b"n=user,r=x"
    question = exchange.respond(first)
    unproven = b"c=%s,r=x%s" % (base64.b64encode(header), SERVER_NONCE.encode())
    exchange.respond(signed(first, question, unproven))
    assert exchange.user == "user"


def test_a_header_that_changes_on_the_way_is_refused() -> None:
    exchange = server()
    first = b"y,,n=user,r=x"
    question = exchange.respond(first)
    with pytest.raises(BadCredentials, match="header"):
        exchange.respond(signed(first, question, b"c=biws,r=x" + SERVER_NONCE.encode()))


@pytest.mark.parametrize("nonce", [b"x", b"x!", SERVER_NONCE.encode()])
def test_a_proof_for_another_nonce_is_refused(nonce: bytes) -> None:
    exchange = server()
    first = b"n,,n=user,r=x"
    question = exchange.respond(first)
    with pytest.raises(BadCredentials, match="another challenge"):
        exchange.respond(signed(first, question, b"c=biws,r=" + nonce))


@pytest.mark.parametrize(
    "first",
    [
        b"p=tls-unique,,n=user,r=x",
        b"p=tls-exporter,,n=user,r=x",
        b"n,a=admin,n=user,r=x",
        b"n,a=,n=user,r=x",
        b"n,user,n=user,r=x",
        b"N,,n=user,r=x",
        b",,n=user,r=x",
        b"n,n=user,r=x",
        b"n=user,r=x",
        b"n,,n=,r=x",
        b"n,,r=x",
        b"n,,n=user",
        b"n,,n=user,r=",
        b"n,,n=user,r=x y",
        b"n,,n=user,r=\xc3\xab",
        b"n,,n=user,r=x,",
        b"n,,n=user,r=x,xy",
        b"n,,n=user,r=x,x=",
        b"n,,n=user,r=x,m=y",
        b"n,,m=y,n=user,r=x",
        b"n,,r=x,n=user",
        b"n,,n=a=b,r=x",
        b"n,,n=a=2c,r=x",
        b"n,,n=a=2D,r=x",
        b"n,,n=user\0,r=x",
        b"n,,n=us\x07er,r=x",
        b"n,,n=\xc2\xad,r=x",
        b"n,,n=\xff,r=x",
        b"n,,n=user,r=x\n",
        b"n,,n=user,r=x\0",
        b" n,,n=user,r=x",
        b"n,,n=" + b"u" * (MAX_NAME_BYTES + 1) + b",r=x",
        b"n,,n=u,r=" + b"x" * MAX_MESSAGE_BYTES,
        CLIENT_FINAL,
    ],
)
def test_a_first_message_that_breaks_the_grammar_ends_the_exchange(first: bytes) -> None:
    exchange = server()
    with pytest.raises(BadCredentials):
        exchange.respond(first)
    with pytest.raises(BadCredentials):
        exchange.respond(CLIENT_FIRST)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"c=biws", b"c=eSws"),
        (b"c=biws", b"c=biwsAAAA"),
        (b"c=biws,", b""),
        (b"r=rOpr", b"r=sOpr"),
        (b"k0,p", b"k,p"),
        (b"k0,p", b"k0,m=x,p"),
        (b"p=dHz", b"p=dHy"),
        (b"p=dHzb", b"p=dHz "),
        (b"p=dHzb", b"p="),
        (b"p=dHzb", b"p=dHzbAAAA"),
        (b"dVQ=", b"dVQ"),
        (b"dVQ=", b"dVQ=="),
        (b"dVQ=", b"dVQ=,x=y"),
        (b"dVQ=", b"dVQ=\n"),
        (b"c=", b"\xff="),
    ],
)
def test_a_last_message_that_is_not_quite_right_ends_the_exchange(old: bytes, new: bytes) -> None:
    assert old in CLIENT_FINAL
    exchange = server()
    exchange.respond(CLIENT_FIRST)
    with pytest.raises(BadCredentials):
        exchange.respond(CLIENT_FINAL.replace(old, new, 1))
    assert exchange.user is None
    with pytest.raises(BadCredentials, match="over"):
        exchange.respond(CLIENT_FINAL)


def test_nothing_comes_after_the_end_and_nothing_twice() -> None:
    exchange = server()
    exchange.respond(CLIENT_FIRST)
    exchange.respond(CLIENT_FINAL)
    with pytest.raises(BadCredentials):
        exchange.respond(CLIENT_FINAL)
    silent = server()
    silent.respond(b"")
    with pytest.raises(BadCredentials):
        silent.respond(b"")


def test_the_longest_name_has_room_twice() -> None:
    name = b"=2C" * MAX_NAME_BYTES
    server().respond(b"n,a=%s,n=%s,r=%s" % (name, name, b"x" * 64))


# Any bytes at all

attributes = st.tuples(
    st.sampled_from("acimnprsvex"), st.sampled_from(("", "x", "user", "biws", "AAAA", "=2C", "4096", "\0"))
).map("=".join)
near_misses = st.lists(attributes | st.sampled_from(("n", "y", "p", "")), max_size=6).map(
    lambda parts: ",".join(parts).encode()
)
changed = st.tuples(
    st.sampled_from((CLIENT_FIRST, SERVER_FIRST, CLIENT_FINAL, SERVER_FINAL)), st.integers(0, 99), st.binary()
).map(lambda parts: parts[0][: parts[1]] + parts[2] + parts[0][parts[1] + len(parts[2]) :])
messages = st.binary() | st.text().map(str.encode) | near_misses | changed


@given(st.lists(messages, max_size=3))
@example([b"", b""])
def test_a_server_meets_any_bytes_with_nothing_but_bad_credentials(data: list[bytes]) -> None:
    for start in ([], [b""], [CLIENT_FIRST]):
        exchange = server()
        try:
            for message in start + data:
                exchange.respond(message)
        except BadCredentials:
            assert exchange.user is None
        assert exchange.is_done == (exchange.user is not None)


@given(messages, messages)
def test_a_client_meets_any_bytes_with_nothing_but_bad_credentials(first: bytes, last: bytes) -> None:
    for question in (first, SERVER_FIRST):
        exchange = client()
        try:
            exchange.prove(question)
            exchange.check(last)
        except BadCredentials:
            continue
        assert (question, last) == (SERVER_FIRST, SERVER_FINAL)


# Names that nobody has


def test_a_decoy_is_stable_and_different_for_each_name() -> None:
    first, again, other = DECOYS.keys_for("x"), DECOYS.keys_for("x"), DECOYS.keys_for("y")
    assert first == again
    assert first.salt != other.salt
    assert Decoys(b"another secret", [PENCIL]).keys_for("x").salt != first.salt


def test_a_decoy_looks_like_the_keys_of_somebody() -> None:
    alike = [PENCIL, make_keys("x", 5000, b"s" * 40)]
    shapes = {
        (keys.iterations, len(keys.salt)) for keys in map(Decoys(b"", alike).keys_for, map(str, range(40)))
    }
    assert shapes == {(FEWEST_ITERATIONS, 16), (5000, 40)}
    alone = Decoys(b"", []).keys_for("x")
    assert (alone.iterations, len(alone.salt)) == (ITERATIONS, 16)


def test_a_stranger_sees_the_same_kind_of_question_for_every_name() -> None:
    known, unknown = (server().respond(b"n,,n=%s,r=x" % name).decode() for name in (b"user", b"nobody"))
    shape = re.compile(r"r=x\S+,s=[A-Za-z0-9+/]{22}==,i=4096")
    assert shape.fullmatch(known)
    assert shape.fullmatch(unknown)
    assert server().respond(b"n,,n=nobody,r=x").decode() == unknown


@pytest.mark.parametrize(
    ("text", "prepared"),
    [
        ("I\u00adX", "IX"),
        ("user", "user"),
        ("USER", "USER"),
        ("\u00aa", "a"),
        ("\u2168", "IX"),
        ("a\u00a0b", "a b"),
        ("a\u2003b", "a b"),
        ("Zoe\u0308", "Zo\u00eb"),
        ("\u0627\u0628", "\u0627\u0628"),
        ("\u06271\u0628", "\u06271\u0628"),
    ],
)
def test_text_is_brought_into_its_prepared_form(text: str, prepared: str) -> None:
    assert prepare(text, is_stored=True) == prepared
    assert prepare(text, is_stored=False) == prepared


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\u00ad",  # nothing is left
        "\x07",
        "a\0",
        "a\x7f",
        "\u06dd",
        "\ue000",  # private use
        "\ufdd0",  # no character
        "\ud800",  # half a character
        "\ufffd",
        "\u2ff0",
        "\u200e",  # changes the direction
        "\U000e0001",
        "\u06271",  # written from the right, but the end is not
        "1\u0627",
        "\u0627a\u0628",  # both directions
    ],
)
def test_what_could_mislead_is_refused(text: str) -> None:
    for is_stored in (True, False):
        with pytest.raises(ValueError):
            prepare(text, is_stored=is_stored)


def test_only_what_is_looked_up_may_have_characters_of_later_times() -> None:
    assert prepare("\U0001f600", is_stored=False) == "\U0001f600"
    with pytest.raises(ValueError, match=r"U\+1F600"):
        prepare("\U0001f600", is_stored=True)


@given(st.text(), st.booleans())
def test_preparing_what_is_prepared_changes_nothing(text: str, is_stored: bool) -> None:
    try:
        prepared = prepare(text, is_stored=is_stored)
    except ValueError:
        return
    assert prepare(prepared, is_stored=is_stored) == prepared
