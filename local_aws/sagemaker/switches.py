"""`/_cohost/faults`: faults on demand, for tests of whatever calls endpoints. No part of SageMaker; unsigned.

`PUT` takes a JSON object and answers the whole state; what is left out stays as it is:
- `throttled_calls`: so many calls from now on get ThrottlingException, status 400 with an empty message, as the service
  sends it (opensearch-project/ml-commons#2429, aws-samples/amazon-sagemaker-nlu-search#4);
- `unavailable_calls`: so many calls after those get ServiceUnavailable, status 503;
- `model_load_delay_s`: seconds that every load of a multi-model container's model takes longer, inside its time limits;
- `container_start_delay_s`: seconds that every start of a container takes longer, a component's copies included.
`GET` answers the state, `DELETE` ends all faults.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import JSONResponse, Response

from local_aws.sagemaker.faults import ServiceUnavailable, ThrottlingException

if TYPE_CHECKING:
    from starlette.requests import Request

PATH: Final = "/_cohost/faults"


class SwitchError(ValueError):
    """A request names a switch that does not exist, or a value that it does not take; the text says the fix."""


@dataclass(kw_only=True)
class Switches:
    """The faults that are on. Counts go down with the calls that they hit."""

    throttled_calls: int = 0
    unavailable_calls: int = 0
    model_load_delay_s: float = 0
    container_start_delay_s: float = 0

    def check_call(self) -> None:
        """Count a call.

        Raises:
            ThrottlingException: the call is one of those to be throttled.
            ServiceUnavailable: it is one of those to find no instance.
        """
        if self.throttled_calls > 0:
            self.throttled_calls -= 1
            raise ThrottlingException(None)
        if self.unavailable_calls > 0:
            self.unavailable_calls -= 1
            raise ServiceUnavailable("ServiceUnavailable was asked for with a fault switch; retry the request")

    def set(self, wanted: object) -> None:
        """Take over the values of a request, all or none.

        Raises:
            SwitchError: a name or a value is wrong.
        """
        for name, value in _checked(wanted).items():
            setattr(self, name, value)

    def clear(self) -> None:
        """End all faults."""
        for field in fields(self):
            setattr(self, field.name, field.default)

    async def answer(self, request: Request) -> Response:
        """The answer to GET, PUT and DELETE of the route."""
        try:
            if request.method == "PUT":
                self.set(await _body(request))
            elif request.method == "DELETE":
                self.clear()
        except SwitchError as fault:
            return JSONResponse({"message": str(fault)}, HTTPStatus.BAD_REQUEST)
        return JSONResponse(asdict(self))


async def _body(request: Request) -> object:
    try:
        return json.loads(await request.body())
    except ValueError:
        raise SwitchError("the body is not JSON; send an object of switches") from None


def _checked(wanted: object) -> dict[str, Any]:
    if not isinstance(wanted, dict):
        raise SwitchError("the body is not a JSON object; send an object of switches")
    known = {field.name: field.default for field in fields(Switches)}
    for name, value in wanted.items():
        if name not in known:
            raise SwitchError(f"{name}: no such switch; there are {', '.join(known)}")
        counts = name.endswith("_calls")
        if not _is_number(value, whole=counts):
            what = "a whole number" if counts else "a number of seconds"
            raise SwitchError(f"{name}: {value!r} is not {what} of 0 or more")
    return wanted


def _is_number(value: object, *, whole: bool) -> bool:
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        return False
    return 0 <= value < math.inf
