"""Run one LMI container in the foreground: `python -m local_aws.lmi --model-store DIR --hub DIR`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from pathlib import Path

from cohost.callers import TOKEN_HEADER, TOKEN_VARIABLE, new_token
from local_aws.lmi.models import hub
from local_aws.lmi.server.container_server import ServerSettings, serve
from local_aws.lmi.settings import RulesError, ServerRules


def main() -> int:
    """Run a container with the command line's options until a signal; returns the exit status."""
    options = _parser().parse_args()
    try:
        rules = ServerRules.of(os.environ)
    except RulesError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    logging.basicConfig(stream=sys.stderr, format="container %(levelname)s %(message)s", level="INFO")
    settings = ServerSettings(
        port=options.port,
        token=_token(show=options.ready_file is None),
        model_store=options.model_store,
        multi_model=options.multi_model,
        hub_roots=options.hub or hub.default_roots(),
        ready_file=options.ready_file,
        memory_mb=options.memory_mb,
        watch_parent=options.watch_parent,
        cache=options.cache,
        wait_model_loading=options.wait_model_loading,
        rules=rules,
    )
    try:
        return asyncio.run(serve(settings))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 0


def _token(*, show: bool) -> str:
    """Return the token that callers must send, and remove it from the environment, which workers inherit."""
    if (given := os.environ.pop(TOKEN_VARIABLE, "")) != "":
        return given
    token = new_token()
    if show:
        sys.stderr.write(f"callers have to send this header: {TOKEN_HEADER}: {token}\n")
    return token


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m local_aws.lmi", description=__doc__)
    parser.add_argument(
        "--port", type=int, default=8080, help="port on 127.0.0.1; 0 chooses a free port (default 8080)"
    )
    parser.add_argument("--model-store", type=Path, required=True, help="folder whose models are loaded at start-up")
    parser.add_argument(
        "--multi-model",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="behave as with SAGEMAKER_MULTI_MODEL=true: a model without required_memory_mb needs 1.2 times its files",
    )
    parser.add_argument(
        "--wait-model-loading",
        action=argparse.BooleanOptionalAction,
        default=os.environ.get("SERVING_WAIT_MODEL_LOADING", "true").lower() == "true",
        help="listen only when the start-up models are loaded (default: SERVING_WAIT_MODEL_LOADING, else true)",
    )
    parser.add_argument(
        "--hub",
        type=Path,
        action="append",
        help="folder of models, each in org/name; may be repeated (default: the emulator's)",
    )
    parser.add_argument(
        "--ready-file", type=Path, help='file for {"port", "pid", "token"}, written when the server listens'
    )
    parser.add_argument("--memory-mb", type=int, help="memory for models in MiB (default: the machine's free memory)")
    parser.add_argument(
        "--cache", type=Path, help="folder for unpacked files, removed at the end (default: a new folder)"
    )
    parser.add_argument("--watch-parent", action="store_true", help="end the server when standard input closes")
    return parser


if __name__ == "__main__":
    sys.exit(main())
