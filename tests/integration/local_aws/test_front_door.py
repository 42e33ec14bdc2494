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
    """Start one front door for the tests of this file."""
    with running(tmp_path_factory.mktemp("state")) as front_door:
        serving_role(front_door.client("iam"), "f", "lambda.amazonaws.com")
        yield front_door


def raw(
    door: FrontDoor, method: str, url: str, body: Any = None, **headers: str
) -> tuple[int, bytes, list[tuple[str, str]]]:
    """Send one request without an SDK, and return status, body and headers."""
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
    """The health route names the emulator, and neither folder, catalog nor key."""
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
    """Nagle's algorithm is off on the connections of the front door."""
    assert door.server.listener.proto == socket.IPPROTO_TCP


def asked(door: FrontDoor) -> socket.socket:
    """A connection for requests that are written by hand."""
    return socket.create_connection(("127.0.0.1", door.server.port), timeout=60)


def answer_on(connection: socket.socket) -> bytes:
    """Return the head of the next answer, with bytes of the body that arrive together with it."""
    head = b""
    while b"\r\n\r\n" not in head:
        part = connection.recv(65536)
        assert part, head
        head += part
    return head


def test_a_client_that_asks_first_is_told_to_go_on(door: FrontDoor) -> None:
    """The front door answers 100 Continue, for which boto3 waits before an upload."""
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
    """A request head may have 64 KiB for long tokens and presigned URLs, and a longer one is rejected."""
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
    """Return a client that signs with its own key."""
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
    """A GET of an image tag, which has no Origin, is rejected without a valid signature."""
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
    """Every route rejects requests of a web page, even with a signature or a one-time URL."""
    url = door.server.url + path
    for headers in ({}, signed_headers(door.key, "PUT", url, "s3")):
        status, body, _ = raw(door, "PUT", url, **{**headers, **told})
        assert status == 403
        assert b"AccessDenied" in body


def test_a_websocket_is_refused(door: FrontDoor) -> None:
    """WebSocket requests are rejected, because browsers send them to any address."""
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    key = {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}
    assert raw(door, "GET", f"{door.server.url}/", **upgrade, **key)[0] == 403


@pytest.mark.parametrize("path", ["/_cohost/endpoints", "/_cohost/faults", "/_cohost/clock", "/moto-api/reset"])
def test_pages_of_the_emulation_take_a_signature(door: FrontDoor, path: str) -> None:
    """The pages for clock and faults, and moto's page for a reset, require a signature."""
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
    """The error for an old access key has AWS's code in each protocol, and the command that prints the present keys."""
    for key, code in zip((("test", "test"), (door.key["key_id"], "of an earlier start")), codes, strict=True):
        with pytest.raises(ClientError) as refused:
            getattr(client_of(door, service, *key), call)()
        assert refused.value.response["Error"]["Code"] == code
        assert f'eval "$(cohost local env --state {door.server.settings.state_dir})"' in str(refused.value)


def test_a_large_upload_with_a_wrong_secret_ends_with_the_reason(door: FrontDoor) -> None:
    """A large upload with a wrong secret is rejected before its body is read, and the client gets the reason."""
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
    """A role's denied call has the service's code and form and no effect; the user's own key is not judged."""
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


def test_an_object_of_a_customer_key_needs_the_right_to_use_it(door: FrontDoor) -> None:
    """Reading S3 alone does not read weights that a key of the user's encrypts; the right holds through S3 only."""
    iam, s3 = door.client("iam"), door.client("s3")
    key = door.client("kms").create_key()["KeyMetadata"]
    s3.create_bucket(Bucket="locked")
    by_default = {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": key["KeyId"]}
    rules = {"Rules": [{"ApplyServerSideEncryptionByDefault": by_default, "BucketKeyEnabled": True}]}
    s3.put_bucket_encryption(Bucket="locked", ServerSideEncryptionConfiguration=rules)
    s3.put_object(Bucket="locked", Key="weights", Body=b"w")
    trust = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"AWS": "123456789012"}}
    arn = iam.create_role(RoleName="reads", AssumeRolePolicyDocument=json.dumps({"Statement": trust}))["Role"]["Arn"]

    def allow(*statements: dict[str, Any]) -> None:
        document = json.dumps(
            {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", **one} for one in statements]}
        )
        iam.put_role_policy(RoleName="reads", PolicyName="reads", PolicyDocument=document)

    taken = door.client("sts").assume_role(RoleArn=arn, RoleSessionName="session")["Credentials"]
    reader = client_of(door, "s3", taken["AccessKeyId"], taken["SecretAccessKey"], taken["SessionToken"])
    objects = {"Action": ["s3:GetObject", "s3:PutObject"], "Resource": "arn:aws:s3:::locked/*"}
    allow(objects)
    with faulted("AccessDenied", 403, f"kms:Decrypt on resource: {key['Arn']}"):
        reader.get_object(Bucket="locked", Key="weights")
    with faulted("AccessDenied", 403, "kms:GenerateDataKey"):
        reader.put_object(Bucket="locked", Key="more", Body=b"w")
    through = {"StringEquals": {"kms:ViaService": "s3.us-east-1.amazonaws.com"}}
    allow(objects, {"Action": "kms:Decrypt", "Resource": key["Arn"], "Condition": through})
    assert reader.get_object(Bucket="locked", Key="weights")["Body"].read() == b"w"


def test_a_role_that_does_not_trust_the_user_cannot_be_taken(door: FrontDoor) -> None:
    """AssumeRole is denied if the role's trust policy does not name the caller, or if the role does not exist."""
    trust = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": "lambda.amazonaws.com"}}
    door.client("iam").create_role(RoleName="closed", AssumeRolePolicyDocument=json.dumps({"Statement": trust}))
    for name in ("closed", "missing"):
        arn = f"arn:aws:iam::123456789012:role/{name}"
        with pytest.raises(ClientError) as caught:
            door.client("sts").assume_role(RoleArn=arn, RoleSessionName="session")
        assert caught.value.response["Error"]["Code"] == "AccessDenied"


def test_each_key_is_its_principal(door: FrontDoor, taken: str) -> None:
    """STS names the signer of each key: the user, an assumed role, or an emulated IAM user."""
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
    """AssumeRole for a role of another account is denied, because the emulator has one account."""
    with faulted("AccessDenied", 403, "RoleArn"):
        door.client("sts").assume_role(RoleArn="arn:aws:iam::999999999999:role/x", RoleSessionName="session")


def test_the_keys_of_two_sessions_are_not_mixed(door: FrontDoor, taken: str) -> None:
    """A role's key is rejected without its token or with the token of another key."""
    sts = door.client("sts")
    one, two = (sts.assume_role(RoleArn=taken, RoleSessionName=name)["Credentials"] for name in ("one", "two"))
    pair = (one["AccessKeyId"], one["SecretAccessKey"])
    assert client_of(door, "s3", *pair, one["SessionToken"]).list_buckets()["ResponseMetadata"]["HTTPStatusCode"] == 200
    for token in (two["SessionToken"], None):
        with faulted("InvalidToken"):
            client_of(door, "s3", *pair, token).list_buckets()


@pytest.mark.parametrize("call", ["get_session_token", "get_federation_token"])
def test_sts_gives_out_no_key_that_all_the_world_knows(door: FrontDoor, call: str) -> None:
    """STS operations for which moto returns keys of AWS's manuals are rejected by name."""
    with faulted("ServiceUnavailableInLocalAws", 400, "AssumeRole"):
        getattr(door.client("sts"), call)(**({"Name": "name"} if "federation" in call else {}))
    with faulted("InvalidClientTokenId", 403):
        client_of(
            door, "sts", "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzEXAMPLEKEY"
        ).get_caller_identity()


def test_large_upload_comes_back_whole(door: FrontDoor) -> None:
    """Uploads of megabytes come back unchanged: at once, in parts, and as a stream."""
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
    """The signatures between the bytes of an `aws-chunked` body do not become part of the object."""
    door.client("s3").create_bucket(Bucket="chunks")
    frame = b"5;chunk-signature=" + b"0" * 64 + b"\r\nhello\r\n0;chunk-signature=" + b"0" * 64 + b"\r\n\r\n"
    url, own = f"{door.server.url}/chunks/key", {"X-Amz-Decoded-Content-Length": "5", "Content-Encoding": "aws-chunked"}
    headers = signed_headers(door.key, "PUT", url, "s3", headers=own, declared="STREAMING-AWS4-HMAC-SHA256-PAYLOAD")
    chunks = iter([frame[:20], frame[20:]])
    assert raw(door, "PUT", url, chunks, **headers, **{"Transfer-Encoding": "chunked"})[0] == 200
    assert door.client("s3").get_object(Bucket="chunks", Key="key")["Body"].read() == b"hello"


def test_presigned_urls_work_without_credentials(door: FrontDoor) -> None:
    """A presigned PUT or GET works without credentials, for one object and method."""
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
    """An expired presigned URL is rejected."""
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
    """A presigned URL with signature version 2 is rejected with the option for version 4."""
    url = door.client("s3").generate_presigned_url("get_object", Params={"Bucket": "b", "Key": "k"})
    assert "AWSAccessKeyId=" in url
    status, body, _ = raw(door, "GET", url)
    assert (status, b"signature_version=" in body) == (400, True)


def test_locusts_own_signer_is_let_in(door: FrontDoor) -> None:
    """The load test's own signatures are accepted, and rejected with a wrong secret."""
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
    """A bucket policy that requires TLS does not block the emulator, and reads back unchanged."""
    s3 = door.client("s3")
    s3.create_bucket(Bucket="tls-only")
    deny = {"Effect": "Deny", "Principal": "*", "Action": "s3:*", "Resource": ["arn:aws:s3:::tls-only/*"]}
    policy = {"Version": "2012-10-17", "Statement": [{**deny, "Condition": {"Bool": {"aws:SecureTransport": "false"}}}]}
    s3.put_bucket_policy(Bucket="tls-only", Policy=json.dumps(policy))
    s3.put_object(Bucket="tls-only", Key="k", Body=b"x")
    assert s3.get_object(Bucket="tls-only", Key="k")["Body"].read() == b"x"
    assert json.loads(s3.get_bucket_policy(Bucket="tls-only")["Policy"]) == policy


def test_answers_have_one_date(door: FrontDoor) -> None:
    """Each answer has exactly one Date header, whichever part of the server wrote it."""
    door.client("s3").create_bucket(Bucket="dates")
    for path in ("/dates", "/nothing-here", "/_cohost/nothing"):
        names = [name.lower() for name, _ in raw(door, "GET", door.server.url + path)[2]]
        assert names.count("date") <= 1
        assert names.count("server") <= 1


def test_unknown_service_and_lookup_events(door: FrontDoor) -> None:
    """An unknown service gives a typed error with its name, and CloudTrail has no events."""
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
    """A function runs as its role with boto3 at the front door, and its output is in its log group."""
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
    """Changed code, environment and logging of a function apply at the next call."""
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
    """A failed function gives FunctionError, and an Event call returns at once."""
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
    """CreateFunction rejects another runtime, broken code and layers by name, and leaves no function."""
    client = door.client("lambda")
    settings: dict[str, Any] = {"Runtime": "python3.13", "Code": {"ZipFile": packed("x = 1")}, **fields}
    with faulted("InvalidParameterValueException", 400, about):
        client.create_function(FunctionName="odd", Role=ROLE, Handler="index.handler", **settings)
    with pytest.raises(client.exceptions.ResourceNotFoundException):
        client.get_function(FunctionName="odd")


def test_port_in_use_is_told_with_its_way_out(tmp_path: Path) -> None:
    """The error for a used port has the port and the fix."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with refused("port-taken", "--port", kind=LocalError):
            LocalAws(Settings(port=port, state_dir=tmp_path / "state"))
    assert not (tmp_path / "state").exists()


def test_state_file_lives_as_long_as_the_server(tmp_path: Path) -> None:
    """`server.json` has pid, port and URL, and is deleted at the end of the server."""
    with running(tmp_path) as door:
        state = json.loads((tmp_path / "server.json").read_text())
        assert state["url"] == f"http://127.0.0.1:{state['port']}" == door.server.url
        assert state["pid"] == os.getpid()
    assert not (tmp_path / "server.json").exists()
    assert door.sagemaker.closed


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_command_starts_soon_and_ends_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    """`python -m local_aws up` prints one line when it is ready, and a signal ends it with exit code 0."""
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
    """Models in --hub are found before the emulator's own of the same name."""
    seen: list[Settings] = []

    class Started:
        def __init__(self, settings: Settings) -> None:
            seen.append(settings)

        def serve(self, _: Any) -> None:
            """Serve no request."""

    monkeypatch.setattr("local_aws.__main__.LocalAws", Started)
    assert main(["up", "--state", str(tmp_path), "--hub", str(tmp_path / "hub")]) == 0
    assert seen[0].hub_roots == (tmp_path / "hub", *default_roots())


def test_bad_catalog_stops_the_command(tmp_path: Path) -> None:
    """A catalog with faults is rejected before the emulator starts."""
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


LARGE = os.urandom(9 * 1024 * 1024)


@pytest.mark.parametrize(
    ("requested", "start", "end"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=5-1000004", 5, 1_000_005),
        ("bytes=9000000-", 9_000_000, len(LARGE)),
        ("bytes=9000000-99999999", 9_000_000, len(LARGE)),
        ("bytes=-3", len(LARGE) - 3, len(LARGE)),
        (f"bytes=0-{len(LARGE) - 1}", 0, len(LARGE)),
    ],
)
def test_a_range_of_a_large_object_is_answered_as_of_a_small_one(
    door: FrontDoor, requested: str, start: int, end: int
) -> None:
    """Status, length and range are S3's; the pieces come from the file, not from a copy in memory."""
    s3 = door.client("s3")
    s3.create_bucket(Bucket="large")
    s3.put_object(Bucket="large", Key="a b/ü", Body=LARGE, Metadata={"owner": "me"})
    answer = s3.get_object(Bucket="large", Key="a b/ü", Range=requested)
    assert answer["Body"].read() == LARGE[start:end]
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 206
    assert answer["ContentRange"] == f"bytes {start}-{end - 1}/{len(LARGE)}"
    assert (answer["ContentLength"], answer["Metadata"]) == (end - start, {"owner": "me"})


def test_a_large_object_keeps_the_rest_of_its_answers(door: FrontDoor) -> None:
    """Whole, conditional, beyond its end, and asked for something else than its bytes."""
    s3 = door.client("s3")
    s3.create_bucket(Bucket="large")
    tag = s3.put_object(Bucket="large", Key="k", Body=LARGE, ContentType="x/y")["ETag"]
    whole = s3.get_object(Bucket="large", Key="k", Range="bytes=5-1")
    assert (whole["ResponseMetadata"]["HTTPStatusCode"], whole["ContentType"], whole["ETag"]) == (200, "x/y", tag)
    assert whole["Body"].read() == LARGE
    assert s3.get_object(Bucket="large", Key="k", ResponseContentType="a/b")["ContentType"] == "a/b"
    for code, condition in (("304", {"IfNoneMatch": tag}), ("PreconditionFailed", {"IfMatch": '"other"'})):
        with pytest.raises(ClientError) as refusal:
            s3.get_object(Bucket="large", Key="k", **condition)
        assert refusal.value.response["Error"]["Code"] == code
    with pytest.raises(ClientError, match="InvalidRange"):
        s3.get_object(Bucket="large", Key="k", Range=f"bytes={len(LARGE)}-")
    assert s3.get_object_tagging(Bucket="large", Key="k")["TagSet"] == []
    s3.copy_object(Bucket="large", Key="copy", CopySource="large/k")
    assert s3.get_object(Bucket="large", Key="copy")["Body"].read() == LARGE
