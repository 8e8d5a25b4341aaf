"""The convention by which a text is followed: what fits what, and what does not."""

import pytest
from testbed.followed import Command, File, Meanwhile, NotRun, fits, items, renamed, spoken

TEXT = """\
Words.

```yaml
# ladon.yaml
mode: observe
```

<!-- meanwhile: stalls 4217 -->

```console
admin# ladon config check \\
    ladon.yaml
ladon.yaml: right: mode observe
login$ true
```

<!-- not run: no systemd here -->
Words.

```console
admin# systemctl enable ladond
```
"""


def test_what_there_is_to_do_is_found_in_its_order():
    assert list(items(TEXT)) == [
        File(4, "ladon.yaml", "# ladon.yaml\nmode: observe\n"),
        Meanwhile(8, ("stalls", "4217")),
        Command(11, "admin", True, "ladon config check ladon.yaml", "ladon.yaml: right: mode observe"),
        Command(14, "login", False, "true", ""),
        NotRun(21, "systemctl enable ladond", "no systemd here"),
    ]


def test_what_is_said_in_passing_is_found_but_not_what_is_in_a_block():
    assert spoken("Do `clush -w a b`, not `x`.\n```console\na# `clush c`\n```\n`clush d`", "clush") == [
        "clush -w a b",
        "clush d",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "```console\nadmin# true\n",
        "```console\nno prompt\n```\n",
        "```sh\ntrue\n```\n",
        "```\ntrue\n```\n",
        "```yaml\nmode: observe\n```\n",
        "<!-- not run: why -->\n",
    ],
)
def test_a_block_that_cannot_be_followed_is_an_error(text):
    with pytest.raises(ValueError, match="line|not run"):
        list(items(text))


@pytest.mark.parametrize(
    ("prints", "printed"),
    [
        ("", "\n"),
        ("a  b", "a b\n"),
        ("one long line", "one long\n  line"),
        ("for 31 min, since 2026-11-30 09:29:37", "for 2.5 s, since 2026-01-02\n  00:00:00"),
        ("opened 11-30 09:29, held until 12:30", "opened 01-02 10:11, held until 23:59"),
        ("warn  10m  ladon.yaml:4", "warn  2s  ladon.yaml:4"),
        ("since 2026-11-30\n  09:29:37, 3\n min", "since 2026-01-02 00:00:00, 2 h"),
        ("first\n...\nlast", "first\nx\ny\nlast"),
        ("first\n...", "first"),
        ("power ... W", "power 149 W"),
    ],
)
def test_what_fits(prints, printed):
    assert fits(prints, printed)


@pytest.mark.parametrize(
    ("prints", "printed"),
    [
        ("", "something"),
        ("a b", "ab"),
        ("mode observe", "mode enforce"),
        ("3 rules", "4 rules"),
        ("first", "first\nsecond"),
        ("first\n...\nlast", "last\nfirst"),
        ("for 31 min", "for ever"),
        ("a.b", "axb"),
    ],
)
def test_what_does_not(prints, printed):
    assert not fits(prints, printed)


def test_names_are_replaced_as_whole_words():
    names = {"4217": "3", "alice": "nobody"}
    assert renamed("4217.0 of alice, not 14217 nor malice", names) == "3.0 of nobody, not 14217 nor malice"
