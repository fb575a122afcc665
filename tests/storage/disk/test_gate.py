"""Many may be inside of a gate, or one alone."""

from threading import Event, Thread

from penstock.storage.disk.gate import Gate


def test_many_are_inside_together() -> None:
    gate = Gate()
    with gate.inside(), gate.inside():
        assert not gate.is_shut
    with gate.alone():
        assert gate.is_shut
    assert not gate.is_shut


def test_whoever_wants_to_be_alone_waits_for_those_inside() -> None:
    gate = Gate()
    order: list[str] = []

    def be_alone() -> None:
        with gate.alone():
            order.append("alone")

    with gate.inside():
        thread = Thread(target=be_alone)
        thread.start()
        thread.join(0.05)
        order.append("left")
    thread.join()
    assert order == ["left", "alone"]


def test_newcomers_wait_for_the_one_who_is_alone_or_wants_to_be() -> None:
    gate = Gate()
    order: list[str] = []
    has_begun, may_end = Event(), Event()

    def be_alone() -> None:
        with gate.alone():
            has_begun.set()
            may_end.wait()
            order.append("alone")

    def enter() -> None:
        with gate.inside():
            order.append("inside")

    threads = [Thread(target=be_alone), Thread(target=enter), Thread(target=be_alone)]
    threads[0].start()
    has_begun.wait()
    threads[1].start()
    threads[1].join(0.05)
    may_end.set()
    threads[2].start()
    for thread in threads:
        thread.join()
    assert order[0] == "alone"
    assert sorted(order) == ["alone", "alone", "inside"]


def test_an_error_inside_opens_the_gate_again() -> None:
    gate = Gate()
    for enter in (gate.inside, gate.alone):
        try:
            with enter():
                raise ValueError
        except ValueError:
            pass
    with gate.alone():
        pass
