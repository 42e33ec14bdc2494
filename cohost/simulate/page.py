"""A comparison as one HTML page that needs nothing else: no script, no font, no request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cohost.simulate.errors import SimulationError
from cohost.simulate.figures import notes, tables
from cohost.simulate.plots import plots_of

if TYPE_CHECKING:
    from cohost.simulate.compare import Comparison


def page(comparison: Comparison) -> str:
    """The whole page, in the report's manner.

    Raises:
        SimulationError: jinja2 is not installed.
    """
    try:
        from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - group `load`
        from markupsafe import Markup  # noqa: PLC0415 - as above
    except ImportError as error:
        raise SimulationError(
            "--html: needs jinja2; allowed: an environment with the group `load`; fix: run `make setup`, or `uv sync "
            "--group load`"
        ) from error
    loader = ChoiceLoader([PackageLoader("cohost.simulate"), PackageLoader("cohost.report")])
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return environment.get_template("simulation.html.j2").render(
        title="Scaling simulation",
        when=comparison.trace.name,
        notes=notes(comparison),
        starred=bool(comparison.swept),
        plots=[(title, text, Markup(svg)) for title, text, svg in plots_of(comparison)],  # noqa: S704 - our own SVG
        tables=tables(comparison),
    )
