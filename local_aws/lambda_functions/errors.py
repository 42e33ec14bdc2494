"""The errors of Lambda: error answers of its API, and the error for code that cannot run."""

from __future__ import annotations

import json

from starlette.responses import Response


class CodeError(Exception):
    """The error for a function's code that cannot be fetched or unpacked; the text contains the reason."""


def lambda_error(code: str, message: str, *, status: int = 400) -> Response:
    """Make an error answer of the Lambda API."""
    body = json.dumps({"Type": "User", "message": message, "Message": message})
    return Response(body, status, {"x-amzn-errortype": code}, media_type="application/json")
