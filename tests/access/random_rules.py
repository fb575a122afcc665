"""Topics, filters and rules at random, from an alphabet so small that they often meet."""

from random import Random

from penstock.common.topics import TopicLimits, check_filter, check_topic
from tests.access.naive import Rights

LEVELS = ("", "a", "a", "b", "$x", "..", "é", "e\u0301", "\uff41")


def make_topic(dice: Random) -> str:
    topic = ""
    while not topic:
        topic = "/".join(dice.choices(LEVELS, k=dice.choice((1, 1, 2, 2, 3, 4))))
    check_topic(topic, TopicLimits())
    return topic


def make_filter(dice: Random, *marks: str) -> str:
    levels = dice.choices((*LEVELS, "+", "+", *marks), k=dice.choice((0, 1, 1, 2, 2, 3)))
    if not any(levels) or dice.random() < 0.3:
        levels.append("#")
    filter = "/".join(levels)
    check_filter(filter, TopicLimits())
    return filter


def make_rights(dice: Random) -> Rights:
    read = [make_filter(dice, "%u", "%c", "x%c", "%u.x") for _ in range(dice.randrange(4))]
    write = [make_filter(dice, "%u", "%c") for _ in range(dice.randrange(4))]
    return Rights(tuple(read), tuple(write))
