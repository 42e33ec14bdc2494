"""The front door with real clients: routing, uploads, Lambda, start and end."""

from __future__ import annotations

import hashlib
import http.client
import io
import json
import os
import signal
import socket
import subprocess
import sys
import zipfile
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

import pytest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError
from fakes.faults import faulted
from fakes.refusals import refused
from stack_template import only

from cohost.errors import LocalError
from cohost.report.run import Target
from load_tests.targets import Destination, Resolved
from load_tests.transport import Transport
from local_aws.__main__ import main
from local_aws.lmi.models.hub import default_roots
from local_aws.server import LocalAws, Settings
from local_aws.testing import serving_role
from local_aws.testing.running import FrontDoor, running, session, wait_for
from local_aws.testing.signing import presigned, signed_headers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROLE = "arn:aws:iam::123456789012:role/f"


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrontDoor]:
    """One front door for this file."""
    with running(tmp_path_factory.mktemp("state")) as front_door:
        serving_role(front_door.client("iam"), "f", "lambda.amazonaws.com")
        yield front_door


def raw(
    door: FrontDoor, method: str, url: str, body: Any = None, **headers: str
) -> tuple[int, bytes, list[tuple[str, str]]]:
    """One request without an SDK: status, body, headers."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection("127.0.0.1", door.server.port, timeout=60)
    try:
        chunked = "Transfer-Encoding" in headers
        connection.request(method, f"{parts.path}?{parts.query}", body, headers, encode_chunked=chunked)
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.getheaders()
    finally:
        connection.close()


def test_health_says_what_it_is_and_nothing_of_its_user(door: FrontDoor) -> None:
    """Anyone on this machine can tell the emulation from the real thing, and learns no folder, catalog or key."""
    status, body, _ = raw(door, "GET", f"{door.server.url}/_cohost/health")
    assert status == 200
    assert json.loads(body) == {
        "status": "ok",
        "emulation": "lmi-cohost local AWS",
        "account": "123456789012",
        "region": "us-east-1",
        "pid": os.getpid(),
    }


def test_answers_are_not_held_back_for_acknowledgements(door: FrontDoor) -> None:
    """Nagle's algorithm is off: asyncio turns it off for sockets whose protocol is named, and for no other."""
    assert door.server.listener.proto == socket.IPPROTO_TCP


def asked(door: FrontDoor) -> socket.socket:
    """A connection for requests that are written by hand."""
    return socket.create_connection(("127.0.0.1", door.server.port), timeout=60)


def answer_on(connection: socket.socket) -> bytes:
    """The head of the next answer; what comes behind it in the same piece goes along."""
    head = b""
    while b"\r\n\r\n" not in head:
        part = connection.recv(65536)
        assert part, head
        head += part
    return head


def test_a_client_that_asks_first_is_told_to_go_on(door: FrontDoor) -> None:
    """boto3 sends what it uploads after 100 Continue."""
    headers = signed_headers(door.key, "PUT", f"{door.server.url}/asked/first", "s3", body=b"abc")
    headers |= {"Host": f"127.0.0.1:{door.server.port}", "Content-Length": "3", "Expect": "100-continue"}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    with asked(door) as connection:
        connection.sendall(f"PUT /asked/first HTTP/1.1\r\n{lines}\r\n".encode())
        assert answer_on(connection).startswith(b"HTTP/1.1 100 ")
        connection.sendall(b"abc")
        # There is no such bucket.
        assert answer_on(connection).startswith(b"HTTP/1.1 404 ")


def test_a_head_may_have_64_kib(door: FrontDoor) -> None:
    """Long tokens and presigned addresses: the server waits for the rest of the head. What is longer is refused."""
    line = b"GET /_cohost/health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: "
    with asked(door) as connection:
        connection.sendall(line + b"a" * 60_000)
        # Once another caller has been answered, the server has looked at what came before.
        assert raw(door, "GET", f"{door.server.url}/_cohost/health")[0] == 200
        connection.sendall(b"\r\n\r\n")
        assert answer_on(connection).startswith(b"HTTP/1.1 200 ")
    with asked(door) as connection:
        connection.sendall(line + b"a" * 70_000)
        assert answer_on(connection).startswith(b"HTTP/1.1 400 ")


def client_of(door: FrontDoor, service: str, key_id: str, secret: str, token: str | None = None) -> Any:
    """A client that signs with a key of its own."""
    return session().client(
        service,
        endpoint_url=door.server.url,
        aws_access_key_id=key_id,
        aws_secret_access_key=secret,
        aws_session_token=token,
        config=Config(retries={"total_max_attempts": 1}, signature_version="s3v4" if service == "s3" else None),
    )


def stacks(door: FrontDoor) -> list[str]:
    """The names of all stacks."""
    return [stack["StackName"] for stack in door.client("cloudformation").describe_stacks()["Stacks"]]


TEMPLATE = only("Topic", "AWS::SNS::Topic", TopicName="made-by-a-page")


@pytest.mark.parametrize(
    "signature",
    [
        {},
        {"X-Amz-Credential": "x/20260101/us-east-1/cloudformation/aws4_request"},
        {
            "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
            "X-Amz-Credential": "test/20260101/us-east-1/cloudformation/aws4_request",
            "X-Amz-Date": "20260101T000000Z",
            "X-Amz-Expires": "604800",
            "X-Amz-SignedHeaders": "host",
            "X-Amz-Signature": "0" * 64,
        },
    ],
)
def test_an_image_on_a_page_makes_nothing(door: FrontDoor, signature: dict[str, str]) -> None:
    """A GET needs no preflight and carries no Origin: without a real signature it is refused, and no stack is made."""
    query = {"Action": "CreateStack", "StackName": "attack", "TemplateBody": TEMPLATE, **signature}
    status, body, _ = raw(door, "GET", f"{door.server.url}/?{urlencode(query)}")
    assert status == 403
    assert b"attack" not in body
    assert stacks(door) == []
    # The same question of somebody who has the keys makes it, so it was the signature that was missing.
    query = {name: value for name, value in query.items() if not name.startswith("X-")}
    url = f"{door.server.url}/?{urlencode({**query, 'StackName': 'control'}, quote_via=quote)}"
    assert raw(door, "GET", url, **signed_headers(door.key, "GET", url, "cloudformation"))[0] == 200
    door.settle("CREATE_COMPLETE", "control")
    door.delete_stack("control")


@pytest.mark.parametrize(
    "told",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Host": "evil.example:4599"},
    ],
)
@pytest.mark.parametrize("path", ["/_cohost/health", "/_cohost/cfn-response/token", "/", "/bucket/key"])
def test_what_a_browser_tells_of_a_page_is_refused_everywhere(door: FrontDoor, told: dict[str, str], path: str) -> None:
    """No page reads even who is here; neither signature nor one-time URL count from one."""
    url = door.server.url + path
    for headers in ({}, signed_headers(door.key, "PUT", url, "s3")):
        status, body, _ = raw(door, "PUT", url, **{**headers, **told})
        assert status == 403
        assert b"AccessDenied" in body


def test_a_websocket_is_refused(door: FrontDoor) -> None:
    """Browsers open one to any address without asking first; there is none here."""
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    key = {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}
    assert raw(door, "GET", f"{door.server.url}/", **upgrade, **key)[0] == 403


@pytest.mark.parametrize("path", ["/_cohost/endpoints", "/_cohost/faults", "/_cohost/clock", "/moto-api/reset"])
def test_pages_of_the_emulation_take_a_signature(door: FrontDoor, path: str) -> None:
    """Clock and faults are for the user alone, and so is moto's own page that empties everything."""
    for method in ("GET", "PUT", "POST"):
        assert raw(door, method, door.server.url + path, b'{"speed": 9}')[0] == 403
    assert door.page("/_cohost/clock")["speed"] == 1


@pytest.mark.parametrize(
    ("service", "call", "codes"),
    [
        ("s3", "list_buckets", ("InvalidAccessKeyId", "SignatureDoesNotMatch")),
        ("sts", "get_caller_identity", ("InvalidClientTokenId", "SignatureDoesNotMatch")),
        ("sagemaker", "list_endpoints", ("UnrecognizedClientException", "InvalidSignatureException")),
        ("lambda", "list_functions", ("UnrecognizedClientException", "InvalidSignatureException")),
        ("logs", "describe_log_groups", ("UnrecognizedClientException", "InvalidSignatureException")),
    ],
)
def test_a_shell_with_old_keys_is_told_how_to_renew_them(
    door: FrontDoor, service: str, call: str, codes: tuple[str, str]
) -> None:
    """Every protocol's SDK shows the code that AWS would give, and the command that prints today's keys."""
    for key, code in zip((("test", "test"), (door.key["key_id"], "of an earlier start")), codes, strict=True):
        with pytest.raises(ClientError) as refused:
            getattr(client_of(door, service, *key), call)()
        assert refused.value.response["Error"]["Code"] == code
        assert f'eval "$(cohost local env --state {door.server.settings.state_dir})"' in str(refused.value)


def test_a_large_upload_with_a_wrong_secret_ends_with_the_reason(door: FrontDoor) -> None:
    """The answer comes before the body is read, and the client hears it all the same."""
    with faulted("SignatureDoesNotMatch", 403):
        client_of(door, "s3", door.key["key_id"], "wrong").put_object(Bucket="b", Key="k", Body=bytes(20_000_000))


@pytest.fixture(scope="module")
def taken(door: FrontDoor) -> str:
    """The ARN of a role that this account may take and that may list the buckets, and nothing else."""
    iam, trust = (
        door.client("iam"),
        {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"AWS": "123456789012"}},
    )
    role = iam.create_role(RoleName="x", AssumeRolePolicyDocument=json.dumps({"Statement": trust}))["Role"]
    allowed = {"Effect": "Allow", "Action": "s3:ListAllMyBuckets", "Resource": "*"}
    iam.put_role_policy(
        RoleName="x", PolicyName="list", PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": allowed})
    )
    return str(role["Arn"])


def test_a_role_may_only_what_its_policies_allow(door: FrontDoor, taken: str) -> None:
    """A denial has the service's own code and form; nothing is written, and the user's own key is not judged."""
    role = door.client("sts").assume_role(RoleArn=taken, RoleSessionName="session")["Credentials"]
    key = (role["AccessKeyId"], role["SecretAccessKey"], role["SessionToken"])
    door.client("s3").create_bucket(Bucket="judged")
    who = "User: arn:aws:sts::123456789012:assumed-role/x/session is not authorized to perform:"
    for service, call, code, action in (
        ("s3", lambda client: client.put_object(Bucket="judged", Key="k", Body=b"x"), "AccessDenied", "s3:PutObject"),
        ("sagemaker", lambda client: client.list_endpoints(), "AccessDeniedException", "sagemaker:ListEndpoints"),
        ("iam", lambda client: client.list_roles(), "AccessDenied", "iam:ListRoles"),
        ("scheduler", lambda client: client.list_schedules(), "AccessDeniedException", "scheduler:ListSchedules"),
    ):
        with pytest.raises(ClientError) as caught:
            call(client_of(door, service, *key))
        error = caught.value.response["Error"]
        assert (error["Code"], caught.value.response["ResponseMetadata"]["HTTPStatusCode"]) == (code, 403)
        assert error["Message"].startswith(f"{who} {action} on resource: ")
    assert door.client("s3").list_objects_v2(Bucket="judged")["KeyCount"] == 0


def test_a_role_that_does_not_trust_the_user_cannot_be_taken(door: FrontDoor) -> None:
    """Its trust policy decides; a role that is not there is refused the same way."""
    trust = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": "lambda.amazonaws.com"}}
    door.client("iam").create_role(RoleName="closed", AssumeRolePolicyDocument=json.dumps({"Statement": trust}))
    for name in ("closed", "missing"):
        arn = f"arn:aws:iam::123456789012:role/{name}"
        with pytest.raises(ClientError) as caught:
            door.client("sts").assume_role(RoleArn=arn, RoleSessionName="session")
        assert caught.value.response["Error"]["Code"] == "AccessDenied"


def test_each_key_is_its_principal(door: FrontDoor, taken: str) -> None:
    """The user, a role that was taken, and a user of the emulated IAM: STS names who signed."""
    sts, iam, account = door.client("sts"), door.client("iam"), "123456789012"
    identity = sts.get_caller_identity()
    assert (identity["Account"], identity["Arn"]) == (account, f"arn:aws:iam::{account}:user/cohost")
    role = sts.assume_role(RoleArn=taken, RoleSessionName="session")["Credentials"]
    session = client_of(door, "sts", role["AccessKeyId"], role["SecretAccessKey"], role["SessionToken"])
    assert session.get_caller_identity()["Arn"] == f"arn:aws:sts::{account}:assumed-role/x/session"
    iam.create_user(UserName="ada")
    made = iam.create_access_key(UserName="ada")["AccessKey"]
    ada = client_of(door, "sts", made["AccessKeyId"], made["SecretAccessKey"])
    assert ada.get_caller_identity()["Arn"] == f"arn:aws:iam::{account}:user/ada"
    iam.update_access_key(UserName="ada", AccessKeyId=made["AccessKeyId"], Status="Inactive")
    with faulted("InvalidClientTokenId", 403):
        ada.get_caller_identity()
    iam.update_access_key(UserName="ada", AccessKeyId=made["AccessKeyId"], Status="Active")
    assert ada.get_caller_identity()["Account"] == account
    iam.delete_access_key(UserName="ada", AccessKeyId=made["AccessKeyId"])
    with faulted("InvalidClientTokenId", 403):
        ada.get_caller_identity()


def test_a_role_of_another_account_is_refused(door: FrontDoor) -> None:
    """There is one account; moto would open an empty second one."""
    with faulted("AccessDenied", 403, "RoleArn"):
        door.client("sts").assume_role(RoleArn="arn:aws:iam::999999999999:role/x", RoleSessionName="session")


def test_the_keys_of_two_sessions_are_not_mixed(door: FrontDoor, taken: str) -> None:
    """A role's key with the token of another key, or without one, is none."""
    sts = door.client("sts")
    one, two = (sts.assume_role(RoleArn=taken, RoleSessionName=name)["Credentials"] for name in ("one", "two"))
    pair = (one["AccessKeyId"], one["SecretAccessKey"])
    assert client_of(door, "s3", *pair, one["SessionToken"]).list_buckets()["ResponseMetadata"]["HTTPStatusCode"] == 200
    for token in (two["SessionToken"], None):
        with faulted("InvalidToken"):
            client_of(door, "s3", *pair, token).list_buckets()


@pytest.mark.parametrize("call", ["get_session_token", "get_federation_token"])
def test_sts_gives_out_no_key_that_all_the_world_knows(door: FrontDoor, call: str) -> None:
    """Moto answers these with the keys of AWS's manuals; they are refused by name, and are no keys here."""
    with faulted("ServiceUnavailableInLocalAws", 400, "AssumeRole"):
        getattr(door.client("sts"), call)(**({"Name": "name"} if "federation" in call else {}))
    with faulted("InvalidClientTokenId", 403):
        client_of(
            door, "sts", "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzEXAMPLEKEY"
        ).get_caller_identity()


def test_large_upload_comes_back_whole(door: FrontDoor) -> None:
    """Assets are megabytes: in one piece, in parts, and as a stream."""
    s3 = door.client("s3")
    s3.create_bucket(Bucket="uploads")
    data = os.urandom(20 * 1024 * 1024)
    s3.put_object(Bucket="uploads", Key="plain", Body=data)
    s3.upload_fileobj(io.BytesIO(data), "uploads", "in parts/ü +%2F.bin")
    for key in ("plain", "in parts/ü +%2F.bin"):
        got = s3.get_object(Bucket="uploads", Key=key)["Body"].read()
        assert hashlib.sha256(got).digest() == hashlib.sha256(data).digest()
    assert [o["Key"] for o in s3.list_objects_v2(Bucket="uploads")["Contents"]] == ["in parts/ü +%2F.bin", "plain"]


def test_upload_in_signed_chunks_comes_back_without_its_frame(door: FrontDoor) -> None:
    """`aws-chunked` bodies carry signatures between the bytes; they must not end up in the object."""
    door.client("s3").create_bucket(Bucket="chunks")
    frame = b"5;chunk-signature=" + b"0" * 64 + b"\r\nhello\r\n0;chunk-signature=" + b"0" * 64 + b"\r\n\r\n"
    url, own = f"{door.server.url}/chunks/key", {"X-Amz-Decoded-Content-Length": "5", "Content-Encoding": "aws-chunked"}
    headers = signed_headers(door.key, "PUT", url, "s3", headers=own, declared="STREAMING-AWS4-HMAC-SHA256-PAYLOAD")
    chunks = iter([frame[:20], frame[20:]])
    assert raw(door, "PUT", url, chunks, **headers, **{"Transfer-Encoding": "chunked"})[0] == 200
    assert door.client("s3").get_object(Bucket="chunks", Key="key")["Body"].read() == b"hello"


def test_presigned_urls_work_without_credentials(door: FrontDoor) -> None:
    """A presigned PUT and GET carry the signature in their query, and are good for one object and method."""
    s3 = door.client("s3", signature_version="s3v4")
    s3.create_bucket(Bucket="presigned")
    put = s3.generate_presigned_url("put_object", Params={"Bucket": "presigned", "Key": "a key/ü"})
    assert raw(door, "PUT", put, b"payload")[0] == 200
    get = s3.generate_presigned_url("get_object", Params={"Bucket": "presigned", "Key": "a key/ü"})
    assert raw(door, "GET", get)[1] == b"payload"
    for method, url in (("DELETE", get), ("GET", put), ("GET", get.replace("a%20key", "other"))):
        status, body, _ = raw(door, method, url)
        assert (status, b"<Code>SignatureDoesNotMatch</Code>" in body) == (403, True)
    assert raw(door, "GET", f"{door.server.url}/presigned/a%20key/%C3%BC")[0] == 403


def test_an_expired_presigned_url_is_refused(door: FrontDoor, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link that was good for a minute an hour ago opens nothing."""
    s3 = door.client("s3", signature_version="s3v4")
    s3.create_bucket(Bucket="expired")
    s3.put_object(Bucket="expired", Key="k", Body=b"x")
    with monkeypatch.context() as patch:
        patch.setattr("botocore.auth.get_current_datetime", lambda: datetime.now(UTC) - timedelta(hours=1))
        old = presigned(door.key, "GET", f"{door.server.url}/expired/k", lasts=60)
        still_good = presigned(door.key, "GET", f"{door.server.url}/expired/k", lasts=7200)
    status, body, _ = raw(door, "GET", old)
    assert (status, b"<Code>AccessDenied</Code><Message>Request has expired" in body) == (403, True)
    assert raw(door, "GET", still_good)[1] == b"x"


def test_presigned_urls_of_the_former_signature_are_refused_by_name(door: FrontDoor) -> None:
    """boto3 still makes them for S3 in the older regions; the message says which option makes those that are taken."""
    url = door.client("s3").generate_presigned_url("get_object", Params={"Bucket": "b", "Key": "k"})
    assert "AWSAccessKeyId=" in url
    status, body, _ = raw(door, "GET", url)
    assert (status, b"signature_version=" in body) == (400, True)


def test_locusts_own_signer_is_let_in(door: FrontDoor) -> None:
    """The load test's transport signs by itself; with a wrong secret its calls are refused."""
    destination = Destination("/endpoints/none/invocations", {"X-Amzn-SageMaker-Target-Model": "m"})
    for secret, status in ((door.key["secret"], 200), ("wrong", 403)):
        target = Target(kind="sagemaker", url=door.server.url, region="us-east-1", emulated=True)
        resolved = Resolved(
            target=target, models=(), destinations=(), revisions=(), credentials=Credentials(door.key["key_id"], secret)
        )
        transport = Transport(resolved, timeout_s=60)
        exchange = transport.send(destination, b"{}")
        transport.close()
        assert (exchange.status, exchange.broken) == (status, None)


def test_tls_only_policy_leaves_the_bucket_usable(door: FrontDoor) -> None:
    """The policy that every bucket of ours has must not shut the emulation out, and reads back as written."""
    s3 = door.client("s3")
    s3.create_bucket(Bucket="tls-only")
    deny = {"Effect": "Deny", "Principal": "*", "Action": "s3:*", "Resource": ["arn:aws:s3:::tls-only/*"]}
    policy = {"Version": "2012-10-17", "Statement": [{**deny, "Condition": {"Bool": {"aws:SecureTransport": "false"}}}]}
    s3.put_bucket_policy(Bucket="tls-only", Policy=json.dumps(policy))
    s3.put_object(Bucket="tls-only", Key="k", Body=b"x")
    assert s3.get_object(Bucket="tls-only", Key="k")["Body"].read() == b"x"
    assert json.loads(s3.get_bucket_policy(Bucket="tls-only")["Policy"]) == policy


def test_answers_have_one_date(door: FrontDoor) -> None:
    """Whoever answers, the Date header is there once."""
    door.client("s3").create_bucket(Bucket="dates")
    for path in ("/dates", "/nothing-here", "/_cohost/nothing"):
        names = [name.lower() for name, _ in raw(door, "GET", door.server.url + path)[2]]
        assert names.count("date") <= 1
        assert names.count("server") <= 1


def test_unknown_service_and_lookup_events(door: FrontDoor) -> None:
    """An SDK turns the refusal into its own error, which names the service; CloudTrail has no events."""
    with faulted("ServiceUnavailableInLocalAws", 400, "pricing"):
        door.client("pricing").get_products(ServiceCode="AmazonSageMaker")
    assert door.client("cloudtrail").lookup_events()["Events"] == []


def packed(source: str) -> bytes:
    """A function's code."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("index.py", source)
    return buffer.getvalue()


@pytest.fixture(scope="module")
def role(door: FrontDoor) -> str:
    """The role that functions run as, with a right of its own."""
    iam = door.client("iam")
    allowed = {"Effect": "Allow", "Action": "s3:CreateBucket", "Resource": "*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
    iam.put_role_policy(RoleName="f", PolicyName="create", PolicyDocument=policy)
    return ROLE


def make_function(door: FrontDoor, name: str, source: str, **fields: Any) -> None:
    """A function of this source."""
    settings = {"Runtime": "python3.13", "Role": ROLE, "Handler": "index.handler", "Timeout": 120}
    door.client("lambda").create_function(FunctionName=name, Code={"ZipFile": packed(source)}, **{**settings, **fields})


@pytest.mark.usefixtures("role")
def test_function_runs_logs_and_goes(door: FrontDoor) -> None:
    """A function is listed and runs as its role with boto3 at the front door; what it prints is in its log group."""
    client = door.client("lambda")
    source = (
        "import boto3\n"
        "def handler(event, context):\n"
        "    print('said', event['x'])\n"
        "    return boto3.client('sts').get_caller_identity()['Arn']\n"
    )
    make_function(door, "talks", source)
    assert [f["FunctionName"] for f in client.list_functions()["Functions"]] == ["talks"]
    answer = client.invoke(FunctionName="talks", Payload=b'{"x": 1}', LogType="Tail")
    assert json.loads(answer["Payload"].read()) == "arn:aws:sts::123456789012:assumed-role/f/talks"
    assert "FunctionError" not in answer
    logs = door.client("logs")
    stream = logs.describe_log_streams(logGroupName="/aws/lambda/talks")["logStreams"][0]["logStreamName"]
    lines = logs.get_log_events(logGroupName="/aws/lambda/talks", logStreamName=stream)["events"]
    assert "said 1" in [line["message"] for line in lines]
    client.delete_function(FunctionName="talks")
    assert client.list_functions()["Functions"] == []
    with pytest.raises(client.exceptions.ResourceNotFoundException):
        client.invoke(FunctionName="talks")


@pytest.mark.usefixtures("role")
def test_function_can_be_changed(door: FrontDoor) -> None:
    """New code, new environment and new logging are in force at the next call, and read back."""
    client = door.client("lambda")
    door.client("logs").create_log_group(logGroupName="mine")
    make_function(door, "changes", "def handler(e, c): return 'old'\n", LoggingConfig={"LogGroup": "mine"})
    client.update_function_code(
        FunctionName="changes",
        ZipFile=packed("import os\ndef handler(e, c): return [os.environ['A'], c.log_group_name]\n"),
    )
    client.update_function_configuration(FunctionName="changes", Environment={"Variables": {"A": "new"}})
    assert json.loads(client.invoke(FunctionName="changes")["Payload"].read()) == ["new", "mine"]
    assert client.get_function(FunctionName="changes")["Configuration"]["LoggingConfig"]["LogGroup"] == "mine"
    client.delete_function(FunctionName="changes")


@pytest.mark.usefixtures("role")
def test_failing_function_and_event_call(door: FrontDoor) -> None:
    """A fault comes back as FunctionError; an Event call returns at once and still runs."""
    client = door.client("lambda")
    make_function(door, "fails", "def handler(e, c): raise ValueError('no')\n")
    answer = client.invoke(FunctionName="fails")
    assert answer["FunctionError"] == "Unhandled"
    assert json.loads(answer["Payload"].read())["errorType"] == "ValueError"
    assert client.invoke(FunctionName="fails", InvocationType="DryRun")["StatusCode"] == 204
    source = "import boto3\ndef handler(e, c): boto3.client('s3').create_bucket(Bucket='made-by-event')\n"
    make_function(door, "later", source)
    assert client.invoke(FunctionName="later", InvocationType="Event")["StatusCode"] == 202
    wait_for(lambda: "made-by-event" in [b["Name"] for b in door.client("s3").list_buckets()["Buckets"]])


@pytest.mark.usefixtures("role")
@pytest.mark.parametrize(
    ("fields", "about"),
    [
        ({"Runtime": "nodejs22.x"}, "nodejs22.x"),
        ({"Code": {"ZipFile": b"no zip"}}, "Code"),
        ({"Layers": ["arn:aws:lambda:us-east-1:123456789012:layer:x:1"]}, "Layers"),
    ],
)
def test_function_that_cannot_run_is_refused_when_it_is_made(
    door: FrontDoor, fields: dict[str, Any], about: str
) -> None:
    """Another runtime, broken code and layers fail by name, and no function is left."""
    client = door.client("lambda")
    settings: dict[str, Any] = {"Runtime": "python3.13", "Code": {"ZipFile": packed("x = 1")}, **fields}
    with faulted("InvalidParameterValueException", 400, about):
        client.create_function(FunctionName="odd", Role=ROLE, Handler="index.handler", **settings)
    with pytest.raises(client.exceptions.ResourceNotFoundException):
        client.get_function(FunctionName="odd")


def test_port_in_use_is_told_with_its_way_out(tmp_path: Path) -> None:
    """The message names the port and the fix, and nothing is written."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with refused("port-taken", "--port", kind=LocalError):
            LocalAws(Settings(port=port, state_dir=tmp_path / "state"))
    assert not (tmp_path / "state").exists()


def test_state_file_lives_as_long_as_the_server(tmp_path: Path) -> None:
    """`server.json` tells pid, port and url; it goes with the server, and SageMaker is told to end."""
    with running(tmp_path) as door:
        state = json.loads((tmp_path / "server.json").read_text())
        assert state["url"] == f"http://127.0.0.1:{state['port']}" == door.server.url
        assert state["pid"] == os.getpid()
    assert not (tmp_path / "server.json").exists()
    assert door.sagemaker.closed


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_command_starts_soon_and_ends_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    """`python -m local_aws up` prints one line when it is ready, and a signal ends it with 0 and no traces."""
    command = [sys.executable, "-m", "local_aws", "up", "--port", "0", "--state", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        assert "is ready at http://127.0.0.1:" in line
        assert (tmp_path / "server.json").exists()
        process.send_signal(number)
        assert process.wait(60) == 0
        assert process.stderr.read() == ""
    assert not (tmp_path / "server.json").exists()


def test_hub_folders_come_before_the_one_that_is_built_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`--hub` is a further folder: what comes with the project is found beside it, and a name of the user's wins."""
    seen: list[Settings] = []

    class Started:
        def __init__(self, settings: Settings) -> None:
            seen.append(settings)

        def serve(self, _: Any) -> None:
            """Nothing to serve."""

    monkeypatch.setattr("local_aws.__main__.LocalAws", Started)
    assert main(["up", "--state", str(tmp_path), "--hub", str(tmp_path / "hub")]) == 0
    assert seen[0].hub_roots == (tmp_path / "hub", *default_roots())


def test_bad_catalog_stops_the_command(tmp_path: Path) -> None:
    """A catalog with faults is told before anything starts."""
    catalog = tmp_path / "bad.yaml"
    catalog.write_text("modles: {}\n", encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "local_aws",
        "up",
        "--port",
        "0",
        "--state",
        str(tmp_path / "s"),
        "--catalog",
        str(catalog),
    ]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 1
    assert "modles" in ended.stderr
    assert "Traceback" not in ended.stderr
