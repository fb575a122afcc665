"""Text from elsewhere in places where markdown is read."""

from penstock.dashboard.plain import plain


def test_no_mark_of_markdown_is_left_to_mean_something() -> None:
    said = plain("**bold** [x](http://y) `code` <b> $x$ :red[a]\n# head")
    assert said == (r"\*\*bold\*\* \[x\]\(http\://y\) \`code\` \<b\> \$x\$ \:red\[a\] \# head")
