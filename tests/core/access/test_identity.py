"""Names that users may have."""

import pytest

from penstock.core.access.identity import is_user_name


@pytest.mark.parametrize("name", ["alice", "Zoë", "a.b@c.org", "pump 7", "a+b", "%u"])
def test_ordinary_user_names_are_accepted(name: str) -> None:
    assert is_user_name(name)


@pytest.mark.parametrize("name", ["", "*", " a", "a ", "a:b", "#a", "a #b", "a\0", "a\nb", "\ufeffa"])
def test_names_that_a_file_could_not_hold_are_refused(name: str) -> None:
    assert not is_user_name(name)
