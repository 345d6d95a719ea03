"""The wall budget is for work: side by side it counts once, and a person's thinking is free."""

from maxkernel_nb.engine.clock import WorkClock


class Hands:
    def __init__(self):
        self.time = 0.0

    def __call__(self):
        return self.time

    def pass_(self, seconds):
        self.time += seconds


def test_work_side_by_side_counts_once():
    hands = Hands()
    clock = WorkClock(hands)
    with clock.working():
        hands.pass_(2)
        with clock.working():
            hands.pass_(3)
        first = clock.take()
        hands.pass_(1)
    assert (first, clock.take(), clock.take()) == (5, 1, 0)


def test_a_persons_thinking_and_idle_time_are_free():
    hands = Hands()
    clock = WorkClock(hands)
    hands.pass_(100)
    with clock.working():
        hands.pass_(1)
        with clock.waiting():
            hands.pass_(3600)
        hands.pass_(1)
    hands.pass_(100)
    assert clock.take() == 2
