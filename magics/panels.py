"""Which run is shown where: one publisher a run, made on the main thread before the run's work begins."""

from __future__ import annotations

from typing import Any

from maxkernel_nb.magics.host import is_batch

_RUN = ("maxkernel_nb.run", "Run")


class Panels:
    """``show`` draws a run's panel in the current cell. A ``Run`` that is a cell's value is drawn too, but once."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self.latest: str | None = None
        self._publishers: dict[int, Any] = {}  # by identity: a resumed run is another object with the same id
        self._drawn: tuple[int, int] | None = None  # run and cell number

    def show(self, run: Any) -> None:
        """Batch clients see nothing until ``freeze``; a terminal shows the run's text."""
        from maxkernel_nb.widgets.publisher import Publisher

        if id(run) not in self._publishers:
            self._publishers[id(run)] = Publisher(run, live=not is_batch(self.shell))
        self._publishers[id(run)].show()
        self.latest = run.id
        self._mark(run)

    def live(self, run_id: str | None = None) -> Any:
        """The run with that id, or the latest, as it was last shown here; None when there is none."""
        wanted = run_id or self.latest
        runs = (publisher.run for publisher in reversed(self._publishers.values()))
        return next((run for run in runs if run.id == wanted), None)

    def freeze(self, run: Any) -> None:
        """The static report, in the place of the live panel or, without one, here."""
        if id(run) not in self._publishers:
            self.show(run)
        self._publishers[id(run)].freeze()
        self._mark(run)

    def _mark(self, run: Any) -> None:
        self._drawn = (id(run), self.shell.execution_count)

    # -- a Run as the value of a cell ------------------------------------------------------------------------------

    def attach(self) -> None:
        self._formatter.for_type_by_name(*_RUN, self._display)

    def detach(self) -> None:
        """Panels of runs in flight become reports; nothing of ours stays in IPython's formatters."""
        self._formatter.pop(".".join(_RUN), None)
        for publisher in self._publishers.values():
            if not publisher.run.state.ended and publisher.panel is not None:
                publisher.freeze()
            publisher.close()
        self._publishers.clear()

    @property
    def _formatter(self) -> Any:
        return self.shell.display_formatter.ipython_display_formatter

    def _display(self, run: Any) -> None:
        if not hasattr(self.shell, "kernel"):
            raise NotImplementedError  # a terminal: IPython falls back to repr
        if self._drawn == (id(run), self.shell.execution_count):
            return
        if is_batch(self.shell):
            self.freeze(run)
        else:
            self.show(run)
