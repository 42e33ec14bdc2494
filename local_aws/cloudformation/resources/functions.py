"""AWS::Lambda::Function."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from local_aws.cloudformation.resources.base import Outcome, Request, ResourceType, call, call_if_there

NAME_LIMIT: Final = 64
# Properties that the API takes under the same names in CreateFunction and UpdateFunctionConfiguration.
SETTINGS: Final = (
    "Description", "Environment", "Handler", "LoggingConfig", "MemorySize", "Role", "Runtime", "Timeout",
)  # fmt: skip


class Function(ResourceType):
    """A function whose code is an object in S3 or stands in the template (ZipFile)."""

    type: ClassVar[str] = "AWS::Lambda::Function"
    known: ClassVar[frozenset[str]] = frozenset({*SETTINGS, "Architectures", "Code", "FunctionName", "Tags"})
    required: ClassVar[frozenset[str]] = frozenset({"Code", "Role"})
    create_only: ClassVar[frozenset[str]] = frozenset({"FunctionName"})
    name_property: ClassVar[str | None] = "FunctionName"

    def create(self, request: Request) -> Outcome:
        """Make the function."""
        properties = request.properties
        answer = call(
            request.client("lambda"),
            "create_function",
            FunctionName=request.name("FunctionName", limit=NAME_LIMIT),
            Code=_code(properties["Code"]),
            Architectures=properties.get("Architectures"),
            Tags=request.all_tags() or None,
            **{key: properties.get(key) for key in SETTINGS},
        )
        return _outcome(answer)

    def update(self, request: Request) -> Outcome:
        """Change code, settings and tags, each only where it differs."""
        client, name = request.client("lambda"), request.physical_id
        if request.changed("Code", "Architectures"):
            call(client, "update_function_code", FunctionName=name, **_code(request.properties["Code"]))
        if request.changed(*SETTINGS):
            settings = {key: request.properties.get(key) for key in SETTINGS}
            settings["Environment"] = settings["Environment"] or {"Variables": {}}
            call(client, "update_function_configuration", FunctionName=name, **settings)
        answer = call(client, "get_function_configuration", FunctionName=name)
        if request.all_tags():
            call(client, "tag_resource", Resource=answer["FunctionArn"], Tags=request.all_tags())
        return _outcome(answer)

    def delete(self, request: Request) -> None:
        """Remove the function."""
        call_if_there(request.client("lambda"), "delete_function", FunctionName=request.physical_id)


def _code(code: dict[str, Any]) -> dict[str, Any]:
    """The code's place for the API; text in the template is packed by the service that runs it."""
    if "ZipFile" in code:
        return {"ZipFile": zipped(str(code["ZipFile"]))}
    return {key: value for key, value in code.items() if key in {"S3Bucket", "S3Key", "S3ObjectVersion"}}


def zipped(source: str) -> bytes:
    """Inline code as CloudFormation packs it: one file `index.py`."""
    import io  # noqa: PLC0415 - only templates with inline code need these
    import zipfile  # noqa: PLC0415 - as above

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("index.py", source)
    return buffer.getvalue()


def _outcome(configuration: dict[str, Any]) -> Outcome:
    return Outcome(physical_id=configuration["FunctionName"], attributes={"Arn": configuration["FunctionArn"]})
