"""Rates of the last hour: means of ten seconds, gauges, gaps, and a ring that never grows."""

from penstock.model import Door
from penstock.telemetry.history import INTERVAL_S, POINTS, RateHistory
from tests.telemetry.scenes import Scene


def sample(scene: Scene, seconds: float = INTERVAL_S) -> RateHistory:
    """Let time pass, and sample as the server does, twice a second."""
    scene.clock.advance(seconds)
    scene.metrics.history.sample()
    return scene.metrics.history


def test_a_point_is_the_mean_rate_since_the_last_one() -> None:
    scene = Scene()
    scene.client("reader").subscribe("a")
    scene.publish(*["a"] * 20)
    history = sample(scene)
    scene.publish(*["a"] * 5)
    sample(scene)
    assert history.series("published", Door.MQTT)[-3:] == [None, 2.0, 0.5]
    assert history.series("delivered", Door.MQTT)[-2:] == [2.0, 0.5]
    assert history.series("published", Door.WEB)[-2:] == [0.0, 0.0]


def test_gauges_are_as_they_are() -> None:
    scene = Scene()
    history = sample(scene)
    assert history.series("connections")[-1] == 2
    assert history.series("loop_lag_ms")[-1] == 0
    assert history.series("log_bytes") == [None] * POINTS
    scene.metrics.stored_bytes = lambda: 4_096
    assert sample(scene).series("log_bytes")[-2:] == [None, 4_096]


def test_nothing_is_sampled_before_it_is_due() -> None:
    scene = Scene()
    history = sample(scene, INTERVAL_S / 2)
    assert history.series("connections") == [None] * POINTS
    at = history.at_us
    assert sample(scene, INTERVAL_S / 2).at_us == at + INTERVAL_S * 1_000_000


def test_a_late_point_does_not_delay_the_next_one() -> None:
    scene = Scene()
    scene.publish(*["a"] * 18)
    history = sample(scene, 12)
    assert history.series("published", Door.MQTT)[-1] == 1.5
    assert sample(scene, 8).series("connections")[-3:] == [None, 2, 2]


def test_missed_points_are_empty() -> None:
    scene = Scene()
    sample(scene)
    assert sample(scene, 35).series("connections")[-4:] == [2, None, None, 2]
    assert sample(scene, 100 * POINTS * INTERVAL_S).series("connections") == [None] * (POINTS - 1) + [2]


def test_an_hour_is_kept() -> None:
    scene = Scene()
    for number in range(POINTS + 7):
        scene.publish(*["a"] * (number % 5))
        sample(scene)
    points = scene.metrics.history.series("published", Door.MQTT)
    assert points == [number % 5 / 10 for number in range(7, POINTS + 7)]
