"""Addresses of pages that show one thing."""

from urllib.parse import parse_qs, urlsplit

from penstock.dashboard.links import topic_link, why_link


def test_a_topic_is_named_whatever_is_in_its_name() -> None:
    link = topic_link("plant/1&x=?/ä #+")
    assert urlsplit(link).path == "/topics"
    assert parse_qs(urlsplit(link).query) == {"topic": ["plant/1&x=?/ä #+"]}


def test_a_message_of_a_topic_has_an_address_too() -> None:
    assert parse_qs(urlsplit(topic_link("a", 7)).query) == {"topic": ["a"], "sequence": ["7"]}


def test_a_question_names_a_client_if_it_is_about_one() -> None:
    assert why_link("a/b", 17) == "/why?topic=a%2Fb&sequence=17"
    assert why_link("a/b", 17, "pump 7") == "/why?topic=a%2Fb&sequence=17&client=pump%207"
