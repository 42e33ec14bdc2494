"""`python -m local_aws up`: run the local AWS emulator in the foreground."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from cohost.deploy.local_aws import subcommand
from cohost.errors import CohostError
from local_aws.kit.account import DEFAULT_REGION
from local_aws.lmi.models.hub import default_roots
from local_aws.server import NAME, LocalAws, Settings


def main(arguments: list[str] | None = None) -> int:
    """Run `python -m local_aws`; return 0 after SIGINT or SIGTERM, 1 for an error that the user has to correct."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        settings = _settings(options)
        LocalAws(settings).serve(_print_ready)
    except CohostError as error:
        print(error, file=sys.stderr)  # noqa: T201 - this is the command's answer
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m local_aws",
        description=f"{NAME}: an AWS emulator on 127.0.0.1 to try a deploy on; its state is lost when it ends.",
        epilog="example: python -m local_aws up --port 4566 --state .cohost --catalog model_configs/offline.yaml",
    )
    up = parser.add_subparsers(dest="command", required=True).add_parser("up", help="serve until SIGINT or SIGTERM")
    up.add_argument("--port", type=int, default=4566, help="port on 127.0.0.1; 0 chooses a free port (default 4566)")
    up.add_argument("--state", type=Path, default=Path(".cohost"), help="folder for logs and files (default .cohost)")
    up.add_argument("--catalog", type=Path, help="the catalog to be deployed; its faults end the start")
    up.add_argument(
        "--hub", type=Path, action="append", default=[], help="a further folder of models, each in org/name"
    )
    up.add_argument("--region", default=DEFAULT_REGION, help=f"region (default {DEFAULT_REGION})")
    up.add_argument(
        "--speed",
        type=float,
        default=1,
        help="the factor by which the clock of alarms, cooldowns and schedules runs faster",
    )
    up.add_argument("--as", dest="act_as", metavar="ROLE_ARN", help="judge the user's own calls by this role's rights")
    return parser


def _settings(options: argparse.Namespace) -> Settings:
    """Return the server's settings; check the catalog first, so that its faults raise CatalogError before the start."""
    catalog = options.catalog
    if catalog is not None:
        from cohost.catalog_file import load_catalog  # this module is needed only if a catalog is given

        load_catalog(catalog)
        catalog = catalog.resolve()
    return Settings(
        port=options.port,
        state_dir=options.state.resolve(),
        catalog=catalog,
        # The user's folders come first: a model of the user may have the name of one that is part of the emulator.
        hub_roots=(*(hub.resolve() for hub in options.hub), *default_roots()),
        region=options.region,
        speed=options.speed,
        act_as=options.act_as,
    )


def _print_ready(server: LocalAws) -> None:
    state = server.settings.state_dir
    print(  # noqa: T201 - as above
        f'{NAME} is ready at {server.url} (state in {state}); its keys: eval "$({subcommand("env", state)})"',
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
