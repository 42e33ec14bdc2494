"""The reasons why models were not loaded, read from log lines of the real server and of the emulator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from cohost.commands import console
from cohost.endpoint import load_failures, status
from cohost.endpoint.load_failures import LoadFailure, LogReader, LogWatch, read_log, reason_from_log
from cohost.endpoint.stack_outputs import Deployment
from cohost.errors import InvocationError, NoCapacityError

if TYPE_CHECKING:
    from pathlib import Path

TRACEBACK = """\
INFO  PyProcess W-98-{model}-stdout: ERROR::Failed invoke service.invoke_handler()
INFO  PyProcess W-98-{model}-stdout: Traceback (most recent call last):
INFO  PyProcess W-98-{model}-stdout:   File "/opt/djl/python/x.py", line 3, in load
INFO  PyProcess W-98-{model}-stdout:     raise KeyError(name)
INFO  PyProcess W-98-{model}-stdout: KeyError: 'token_type_ids'
INFO  PyProcess W-98-{model}-stdout:
INFO  PyProcess W-98-{model}-stdout: During handling of the above exception, another exception occurred:
INFO  PyProcess W-98-{model}-stdout:
INFO  PyProcess W-98-{model}-stdout: Traceback (most recent call last):
INFO  PyProcess W-98-{model}-stdout:   File "/opt/djl/python/y.py", line 5, in handle
INFO  PyProcess W-98-{model}-stdout: ValueError: {reason}
"""
STORE_FAILED = """\
ERROR ModelServer Failed register workflow
java.util.concurrent.CompletionException: ai.djl.engine.EngineException: {message}
\tat java.base/java.util.concurrent.CompletableFuture.encodeThrowable(CompletableFuture.java:315)
Caused by: ai.djl.engine.EngineException: {message}
\tat ai.djl.python.engine.PyProcess.predictStandard(PyProcess.java:190)
INFO  server_metric ModelLoadingError.Count:1|#Model:{model},Host:vm
"""
NOTHING = "Failed to initialize model: invoke handler failure"


def read(text: str, *names: str) -> tuple[LoadFailure, ...]:
    """Return the failures in a log."""
    reader = LogReader(names=names)
    for line in text.splitlines():
        reader.feed(line)
    return reader.failures


def test_the_answer_is_the_reason_where_it_holds_one() -> None:
    """An answer with a reason is used, with the catalog's name of the model."""
    log = TRACEBACK.format(model="xlmr_large_mult", reason="told twice") + STORE_FAILED.format(
        model="xlmr_large_multi", message="Failed to initialize model: org/xlmr: dtype: 'fp8' is not allowed"
    )
    (failure,) = read(log, "mini", "xlmr-large-multi")
    assert failure.line() == (
        "model xlmr-large-multi was not loaded: EngineException: Failed to initialize model: org/xlmr: dtype: 'fp8' is "
        "not allowed"
    )


def test_a_reason_that_only_the_log_has_is_the_last_error_of_the_models_worker() -> None:
    """The reason of a failed load is the last error of the model's own worker in the log."""
    log = (
        TRACEBACK.format(model="xlmr_large", reason="no such file")
        + TRACEBACK.format(model="mini", reason="of a request")
        + STORE_FAILED.format(model="xlmr_large", message=NOTHING)
    )
    assert [one.line() for one in read(log, "xlmr-large", "mini")] == [
        f"model xlmr-large was not loaded: EngineException: {NOTHING} (ValueError: no such file)"
    ]


def test_a_log_without_a_reason_names_the_model_all_the_same() -> None:
    """A log without a reason still names the model, by the server's metric."""
    assert read("server_metric - ModelLoadingError.Count:1|#Model:a_b") == (
        LoadFailure(model="a_b", reason="the log has no reason"),
    )


def test_two_folders_of_one_name_are_a_failure() -> None:
    """Two model folders with one name are a load failure, because they end the server at its start (recorded: 29)."""
    (failure,) = read("ai.djl.serving.http.BadRequestException: Workflow a_b is already registered.")
    assert failure.line() == "model a_b was not loaded: two folders of the model store become a_b"


def test_a_multi_model_container_fails_calls_by_their_target() -> None:
    """On a multi-model container the failed model is named by its target, with the last error as reason."""
    log = TRACEBACK.format(model="0123456789abcde", reason="labels do not fit the head") + (
        '2026-12-01T00:00:00.000+00:00 sagemaker minilm.tar.gz was not loaded: { "code": 500, "type": '
        f'"EngineException", "message": "{NOTHING}" }}'
    )
    assert [one.line() for one in read(log)] == [
        f"model minilm was not loaded: {NOTHING} (ValueError: labels do not fit the head)"
    ]


@pytest.mark.parametrize(
    "good",
    [
        "2026-12-01T00:00:00.000+00:00 sagemaker mini.tar.gz was loaded as 0123 in 1.00 s",
        "INFO  PyProcess Model [mini.tar.gz] initialized.",
    ],
)
def test_a_model_that_is_loaded_later_is_no_failure_any_more(good: str) -> None:
    """A model that loads later is no longer a failure."""
    bad = "2026-12-01T00:00:00.000+00:00 sagemaker {}.tar.gz was not loaded: no memory\n"
    assert [one.model for one in read(bad.format("mini") + bad.format("nli") + good)] == ["nli"]


class Logs:
    """A fake CloudWatch Logs with one group, whose events come in pages of one."""

    def __init__(self, *messages: str) -> None:
        self.messages = list(messages)
        self.asked: list[dict[str, Any]] = []

    def filter_log_events(self, **asked: Any) -> dict[str, Any]:
        """A page."""
        if asked["logGroupName"] != "there":
            raise ClientError({"Error": {"Code": "ResourceNotFoundException"}}, "FilterLogEvents")
        self.asked.append(asked)
        number = int(asked.get("nextToken", 0))
        events = [{"eventId": str(number), "message": self.messages[number]}] if number < len(self.messages) else []
        more = {"nextToken": str(number + 1)} if number + 1 < len(self.messages) else {}
        return {"events": events, **more}


def test_a_watch_reads_each_event_once_and_leaves_out_what_it_cannot_read() -> None:
    """A watch returns each event once, and ignores a missing log group."""
    logs: Any = Logs("a", "x sagemaker mini.tar.gz was not loaded: no memory")
    watch = LogWatch(logs, ["mini"], since_ms=7)
    watch.look(["gone", "there"])
    logs.messages.append("last")
    watch.look(["gone", "there"])
    assert list(watch.reader.tail) == ["a", "x sagemaker mini.tar.gz was not loaded: no memory", "last"]
    assert [one.model for one in watch.reader.failures] == ["mini"]
    assert {asked["startTime"] for asked in logs.asked} == {7}


def test_a_file_is_read_from_its_end_and_none_is_an_empty_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the last part of a log file is read, and a missing file is an empty log."""
    file = tmp_path / "container.log"
    file.write_text(
        "x sagemaker old.tar.gz was not loaded: no memory\n" + 100 * "-" + "\nx sagemaker new was not loaded: b\n"
    )
    assert [one.model for one in read_log(file).failures] == ["old", "new"]
    monkeypatch.setattr(load_failures, "_MOST_BYTES", 100)
    assert [one.model for one in read_log(file).failures] == ["new"]
    assert read_log(tmp_path / "none").failures == ()


def call(logs: Logs, error: InvocationError) -> InvocationError:
    """The error of a call of model `mini` after the log was asked."""
    group: Any = logs
    with pytest.raises(InvocationError) as caught, reason_from_log(group, "e", "mini"):
        raise error
    return caught.value


def failure(problem: str) -> InvocationError:
    """The error of a call."""
    return InvocationError("endpoint-answer", "model mini", problem)


@pytest.fixture
def endpoint_logs(monkeypatch: pytest.MonkeyPatch) -> Logs:
    """The log group of endpoint `e`, whose lines come at once."""
    monkeypatch.setattr(load_failures, "_LOG_PAUSES_S", (0, 0))
    monkeypatch.setattr(load_failures, "ENDPOINT_LOGS", "")
    logs = Logs()
    ask = logs.filter_log_events
    monkeypatch.setattr(logs, "filter_log_events", lambda **asked: ask(**{**asked, "logGroupName": "there"}))
    return logs


def test_an_error_that_says_nothing_is_told_with_the_logs_reason(endpoint_logs: Logs) -> None:
    """An error without a reason gets the reason from the model's log lines, or else from a worker's last error."""
    endpoint_logs.messages = TRACEBACK.format(model="0123", reason="no weights").splitlines()
    parts: dict[str, Any] = {"allowed": "an answer", "fix": "mend it", "status": 500, "aws_code": "ModelError"}
    told = call(endpoint_logs, NoCapacityError("some-code", "model mini", NOTHING, **parts))
    assert type(told) is NoCapacityError
    assert told.problem == f"{NOTHING}; in the log: ValueError: no weights"
    assert (told.code, told.field) == ("some-code", "model mini")
    assert {name: getattr(told, name) for name in parts} == parts
    endpoint_logs.messages += [
        "x sagemaker mini.tar.gz was not loaded: no memory",
        "x sagemaker nli.tar.gz was not loaded: of another",
    ]
    assert "in the log: no memory" in call(endpoint_logs, failure(NOTHING)).problem


def test_an_error_that_says_why_is_left_alone(endpoint_logs: Logs) -> None:
    """An error with a reason stays unchanged, and no log is read."""
    said = failure("EngineException: Failed to initialize model: org/mini: dtype")
    assert call(endpoint_logs, said) is said
    assert endpoint_logs.asked == []
    unsaid = failure(NOTHING)
    assert call(endpoint_logs, unsaid) is unsaid
    assert len(endpoint_logs.asked) == 2


class Session:
    """A session whose clients are all the same fake."""

    def __init__(self, logs: Logs) -> None:
        self.logs = logs

    def client(self, service: str, region_name: str) -> Logs:
        """The logs of a region."""
        assert (service, region_name) == ("logs", "eu-west-1")
        return self.logs


def test_the_status_names_models_that_were_not_loaded(capsys: pytest.CaptureFixture[str]) -> None:
    """`cohost status` names models that failed to load in the last hour, by their names in the catalog."""
    deployment = Deployment(
        stack_name="s",
        endpoint_name="e",
        bucket="b",
        prefix="p/",
        generation="g",
        model_data_url="s3://b/p/g/",
        region="eu-west-1",
        topology="scale-to-zero",
        models={"x-l": "x_l"},
        inference_component_name="e-models",
    )
    logs = Logs("ai.djl.engine.EngineException: no memory", "ModelLoadingError.Count:1|#Model:x_l")
    asked: list[str] = []
    read = logs.filter_log_events

    def recorded(**wanted: Any) -> dict[str, Any]:
        asked.append(wanted["logGroupName"])
        return read(**{**wanted, "logGroupName": "there"})

    logs.filter_log_events = recorded  # type: ignore[method-assign]
    session: Any = Session(logs)
    failures = status._load_failures(deployment, session)
    assert failures == (LoadFailure(model="x-l", reason="EngineException: no memory"),)
    assert set(asked) == {"/aws/sagemaker/Endpoints/e", "/aws/sagemaker/InferenceComponents/e-models"}
    console.print_status(
        status.Status(
            stack_name="s",
            topology="scale-to-zero",
            endpoint_name="e",
            endpoint_status="InService",
            failure_reason=None,
            instance_type="ml.g5.xlarge",
            instance_count=1,
            generation="g",
            model_data_url="s3://b/p/g/",
            archives={},
            not_in_outputs=(),
            loaded_models=None,
            component=None,
            load_failures=failures,
        )
    )
    printed = capsys.readouterr().out
    assert "Not loaded in the last hour" in printed
    assert "x-l" in printed
    assert "no memory" in printed
