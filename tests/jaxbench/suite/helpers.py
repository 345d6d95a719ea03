"""No task: a suite may hold other files."""


def workload():
    raise RuntimeError("nobody should run this")
