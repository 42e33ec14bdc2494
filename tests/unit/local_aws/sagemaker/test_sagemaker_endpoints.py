"""The life of endpoints: creation, updates, roll-back, deletion, quotas, dead containers."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from fakes.faults import faulted

from local_aws.testing.sagemaker_cloud import IMAGE

if TYPE_CHECKING:
    from collections.abc import Callable

    from local_aws.testing.sagemaker_cloud import Cloud

pytestmark = pytest.mark.process

ARN = "arn:aws:sagemaker:us-east-1:123456789012"


def test_an_endpoint_goes_from_creating_to_in_service(make_cloud: Callable[..., Cloud]) -> None:
    """Creating is visible, calls are refused meanwhile, and the waiter of boto3 ends with InService."""
    cloud = make_cloud(transition_delay_s=0.3)
    cloud.create_model()
    cloud.create_config(count=2)
    cloud.transitions.shut()
    began = time.monotonic()
    arn = cloud.sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="config")["EndpointArn"]
    assert arn == f"{ARN}:endpoint/e"
    assert cloud.status()["EndpointStatus"] == "Creating"
    with faulted("ValidationError", 400, "Endpoint e "):
        cloud.invoke()
    cloud.transitions.open()
    waiter = cloud.sagemaker.get_waiter("endpoint_in_service")
    waiter.wait(EndpointName="e", WaiterConfig={"Delay": 1, "MaxAttempts": 60})
    assert time.monotonic() - began >= 0.3
    (variant,) = cloud.status()["ProductionVariants"]
    assert (variant["VariantName"], variant["CurrentInstanceCount"], variant["CurrentWeight"]) == ("AllTraffic", 2, 1.0)
    assert len(cloud.factory.running) == 2


def test_a_container_is_started_as_the_model_says(cloud: Cloud) -> None:
    """The container gets the model's environment, multi-model mode and the instance type's smaller memory."""
    cloud.deploy(Environment={"SERVING_FEATURES": "x"})
    options = cloud.factory.started[0].options
    assert options["multi_model"] is True
    own = {name: value for name, value in options["environment"].items() if not name.startswith("AWS_")}
    assert own == {"SERVING_FEATURES": "x", "SAGEMAKER_MULTI_MODEL": "true"}
    assert options["memory_mb"] == 16384
    assert options["start_timeout_s"] == 600


def test_a_container_can_call_the_other_services(cloud: Cloud) -> None:
    """A container fetches a model with an s3:// id itself, as with an execution role."""
    cloud.deploy(Environment={"AWS_REGION": "eu-west-1"})
    environment = cloud.factory.started[0].options["environment"]
    s3 = boto3.client(
        "s3",
        endpoint_url=environment["AWS_ENDPOINT_URL"],
        aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
        aws_session_token=environment["AWS_SESSION_TOKEN"],
        region_name=environment["AWS_DEFAULT_REGION"],
    )
    assert "models" in {bucket["Name"] for bucket in s3.list_buckets()["Buckets"]}
    assert environment["AWS_REGION"] == "eu-west-1"


def principal_of(cloud: Cloud, container: int = 0) -> str | None:
    """Return the principal of a container's key, or None."""
    environment = cloud.factory.started[container].options["environment"]
    key = cloud.keys.find(environment["AWS_ACCESS_KEY_ID"])
    assert key is None or key.environment().items() <= environment.items()
    return None if key is None else key.principal


def test_a_container_has_the_key_of_its_models_role(cloud: Cloud) -> None:
    """Every container signs as its model's role, in the session that SageMaker names."""
    cloud.deploy(count=2)
    expected = "arn:aws:sts::123456789012:assumed-role/execution/SageMaker"
    assert [principal_of(cloud, 0), principal_of(cloud, 1)] == [expected, expected]


def test_a_container_without_a_role_has_nobodys_keys(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container without a role has no access keys, not even those of the shell that started the server."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of a shell")
    container = {"Image": IMAGE}
    cloud.sagemaker.create_model(ModelName="model", PrimaryContainer=container)
    cloud.create_config()
    cloud.sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="config")
    cloud.wait_status("InService")
    environment = cloud.factory.started[0].options["environment"]
    assert principal_of(cloud) is None
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        assert environment[name] == ""


def test_a_component_without_a_model_has_the_key_of_the_configurations_role(cloud: Cloud) -> None:
    """A container that a component describes runs as the role of the endpoint config."""
    cloud.deploy_components()
    artifact = {"Image": IMAGE, "ArtifactUrl": "s3://models/p/all.tar.gz"}
    cloud.create_component(ModelName=None, Container=artifact)
    cloud.wait_component("InService")
    assert principal_of(cloud) == "arn:aws:sts::123456789012:assumed-role/execution/SageMaker"


def test_a_creation_that_fails_says_why_and_can_only_be_deleted(cloud: Cloud) -> None:
    """A container that does not start gives Failed with the service's reason; nothing runs afterwards."""
    cloud.create_model()
    cloud.create_config()
    cloud.factory.failing = True
    cloud.sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="config")
    assert cloud.wait_status("Failed")["FailureReason"] == (
        "The primary container for production variant AllTraffic did not pass the ping health check. "
        "Please check CloudWatch logs for this endpoint."
    )
    with faulted("ValidationException", 400, "Cannot update failed endpoint"):
        cloud.sagemaker.update_endpoint(EndpointName="e", EndpointConfigName="config")
    cloud.sagemaker.delete_endpoint(EndpointName="e")
    cloud.sagemaker.get_waiter("endpoint_deleted").wait(EndpointName="e", WaiterConfig={"Delay": 1})


def test_names_and_references_are_checked(cloud: Cloud) -> None:
    """An endpoint needs an existing config and a unique name."""
    with faulted("ValidationException", 400, f"{ARN}:endpoint-config/gone"):
        cloud.sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="gone")
    cloud.deploy()
    with faulted("ValidationException", 400, f'Cannot create already existing endpoint "{ARN}:endpoint/e".'):
        cloud.sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="config")
    for call in (cloud.sagemaker.describe_endpoint, cloud.sagemaker.delete_endpoint):
        with faulted("ValidationException", 400, f'Could not find endpoint "{ARN}:endpoint/gone".'):
            call(EndpointName="gone")
    cloud.sagemaker.delete_model(ModelName="model")
    with faulted("ValidationException", 400, f"{ARN}:model/model"):
        cloud.sagemaker.create_endpoint(EndpointName="f", EndpointConfigName="config")


def test_an_update_is_blue_green(cloud: Cloud, wait: Callable[..., None]) -> None:
    """During an update no call fails, and the old container ends after the new one serves."""
    cloud.put_model("a.tar.gz", answer="old")
    cloud.put_model("a.tar.gz", prefix="q/", answer="new")
    cloud.deploy()
    cloud.create_model("model-2", ModelDataUrl="s3://models/q/")
    cloud.create_config("config-2", model="model-2")
    answers: list[Any] = []
    ended = threading.Event()

    def keep_calling() -> None:
        while not ended.is_set():
            answers.append(cloud.invoke()["answer"])

    caller = threading.Thread(target=keep_calling)
    caller.start()
    wait(lambda: answers)
    cloud.sagemaker.update_endpoint(EndpointName="e", EndpointConfigName="config-2")
    assert cloud.wait_status("InService")["EndpointConfigName"] == "config-2"
    wait(lambda: answers[-1] == "new")
    ended.set()
    caller.join()
    assert sorted(answers, key=["old", "new"].index) == answers
    assert [container.alive for container in cloud.factory.started] == [False, True]


def test_running_calls_end_before_their_instance(cloud: Cloud, wait: Callable[..., None]) -> None:
    """A running call is answered by the old instance during an update."""
    cloud.put_model("a.tar.gz", answer="old", behaviour="invoke=held")
    cloud.deploy()
    cloud.invoke()
    cloud.create_config("config-2")
    cloud.factory.gate.shut()
    answers: list[Any] = []
    caller = threading.Thread(target=lambda: answers.append(cloud.invoke()["answer"]))
    caller.start()
    wait(lambda: cloud.replica().in_flight)
    cloud.sagemaker.update_endpoint(EndpointName="e", EndpointConfigName="config-2")
    wait(lambda: cloud.service.state.endpoints.get("e").config_name == "config-2")
    assert [container.alive for container in cloud.factory.started] == [True, True]
    cloud.factory.gate.open()
    caller.join()
    assert answers == ["old"]
    cloud.wait_status("InService")
    assert [container.alive for container in cloud.factory.started] == [False, True]


def test_an_update_that_fails_rolls_back(cloud: Cloud, wait: Callable[..., None]) -> None:
    """A failed update passes RollingBack, keeps the config, reports the reason and serves."""
    cloud.put_model("a.tar.gz", answer="old")
    cloud.deploy()
    cloud.create_config("config-2")
    cloud.factory.failing = True
    cloud.factory.start_gate.shut()
    cloud.sagemaker.update_endpoint(EndpointName="e", EndpointConfigName="config-2")
    assert cloud.status()["EndpointStatus"] == "Updating"
    wait(lambda: cloud.factory.starting)
    cloud.transitions.shut()
    cloud.factory.start_gate.open()
    cloud.wait_status("RollingBack")
    assert cloud.invoke()["answer"] == "old"
    cloud.transitions.open()
    status = cloud.wait_status("InService")
    assert status["EndpointConfigName"] == "config"
    assert "did not pass the ping health check" in status["FailureReason"]


def test_a_change_under_way_excludes_another(cloud: Cloud) -> None:
    """An endpoint that changes can be neither updated nor deleted."""
    cloud.transitions.shut()
    cloud.create_model()
    cloud.create_config()
    cloud.sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="config")
    for call in (
        lambda: cloud.sagemaker.update_endpoint(EndpointName="e", EndpointConfigName="config"),
        lambda: cloud.sagemaker.delete_endpoint(EndpointName="e"),
    ):
        with faulted("ValidationException", 400, f'Cannot update in-progress endpoint "{ARN}:endpoint/e".'):
            call()


def test_deleting_the_configuration_in_use_blocks_the_next_update(cloud: Cloud) -> None:
    """The service lets a configuration in use be deleted and then cannot update the endpoint."""
    cloud.deploy()
    cloud.create_config("config-2")
    cloud.sagemaker.delete_endpoint_config(EndpointConfigName="config")
    with faulted("ValidationException", 400, f"{ARN}:endpoint-config/config"):
        cloud.sagemaker.update_endpoint(EndpointName="e", EndpointConfigName="config-2")


def test_a_deleted_endpoint_leaves_nothing(cloud: Cloud, wait: Callable[..., None]) -> None:
    """A deleted endpoint leaves no container and no file."""
    cloud.put_model("a.tar.gz", answer="a")
    cloud.deploy()
    cloud.invoke()
    cloud.sagemaker.delete_endpoint(EndpointName="e")
    wait(lambda: not cloud.sagemaker.list_endpoints()["Endpoints"])
    assert cloud.factory.running == []
    assert [path for path in (cloud.state_dir / "endpoints").rglob("*") if path.is_file()] == []
    with faulted("ValidationError", 400, "Endpoint e "):
        cloud.invoke()


@pytest.mark.parametrize(("quotas", "limit"), [(None, 0), ({"ml.p5.48xlarge": 1}, 1)])
def test_quotas_are_those_of_the_account(make_cloud: Callable[..., Cloud], quotas: Any, limit: int) -> None:
    """A type without quota is refused as in a fresh account, with the service's text and code."""
    cloud = make_cloud(instance_quotas=quotas)
    cloud.create_model()
    cloud.create_config(InstanceType="ml.p5.48xlarge", count=2)
    with pytest.raises(cloud.sagemaker.exceptions.ResourceLimitExceeded) as caught:
        cloud.sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="config")
    assert (
        f"The account-level service limit 'ml.p5.48xlarge for endpoint usage' is {limit} Instances, with current "
        "utilization of 0 Instances and a request delta of 2 Instances."
    ) in str(caught.value)


def test_a_dead_container_is_replaced(cloud: Cloud, wait: Callable[..., None]) -> None:
    """If a container dies, its endpoint stays in service and answers again after the models are reloaded."""
    cloud.put_model("a.tar.gz", answer="a")
    cloud.deploy()
    cloud.invoke()
    cloud.run(cloud.factory.started[0].die())
    wait(lambda: len(cloud.factory.started) == 2)
    wait(lambda: cloud.replica().ready)
    assert cloud.invoke()["answer"] == "a"
    assert cloud.status()["EndpointStatus"] == "InService"


def test_a_container_that_fails_its_pings_is_replaced(
    make_cloud: Callable[..., Cloud], wait: Callable[..., None]
) -> None:
    """A container that runs but is not healthy for several pings is replaced too."""
    cloud = make_cloud(ping_failures=3)
    cloud.deploy()
    cloud.factory.started[0].ping_status = 500
    wait(lambda: len(cloud.factory.running) == 1 and len(cloud.factory.started) == 2)


def test_the_other_instance_answers_while_one_is_dead(make_cloud: Callable[..., Cloud]) -> None:
    """With two instances, calls go to the living one before the death of the other is detected."""
    cloud = make_cloud(alive_interval_s=30)
    cloud.put_model("a.tar.gz", answer="a")
    cloud.deploy(count=2)
    port = cloud.invoke()["port"]
    (holder,) = [container for container in cloud.factory.started if container.url.endswith(port)]
    cloud.factory.failing = True
    cloud.run(holder.die())
    assert cloud.invoke()["port"] != port
    cloud.factory.failing = False


def test_counts_and_weights_can_be_changed(cloud: Cloud) -> None:
    """UpdateEndpointWeightsAndCapacities changes instances and weights."""
    cloud.deploy()

    def rescale(count: int) -> dict[str, Any]:
        change = {"VariantName": "AllTraffic", "DesiredInstanceCount": count, "DesiredWeight": 0.5}
        cloud.sagemaker.update_endpoint_weights_and_capacities(EndpointName="e", DesiredWeightsAndCapacities=[change])
        variant: dict[str, Any] = cloud.wait_status("InService")["ProductionVariants"][0]
        return variant

    assert rescale(3)["CurrentInstanceCount"] == len(cloud.factory.running) == 3
    assert rescale(1)["CurrentWeight"] == 0.5
    assert len(cloud.factory.running) == 1
    with faulted("ValidationException", 400, "Variant x"):
        cloud.sagemaker.update_endpoint_weights_and_capacities(
            EndpointName="e", DesiredWeightsAndCapacities=[{"VariantName": "x", "DesiredWeight": 1}]
        )


def test_shutdown_ends_containers_in_every_state(make_cloud: Callable[..., Cloud], wait: Callable[..., None]) -> None:
    """A shutdown during an update ends old and starting containers."""
    cloud = make_cloud()
    cloud.deploy()
    cloud.create_config("config-2", count=2)
    cloud.factory.start_gate.shut()
    cloud.sagemaker.update_endpoint(EndpointName="e", EndpointConfigName="config-2")
    wait(lambda: cloud.factory.starting == 2)
    cloud.run(cloud.service.stop_endpoints())
    assert cloud.factory.running == []
    assert cloud.factory.given_up == 2


def test_an_update_keeps_instances_and_weights_where_it_is_told_to(cloud: Cloud) -> None:
    """RetainAllVariantProperties keeps the scaled number of instances in an update."""
    cloud.deploy()
    change = {"VariantName": "AllTraffic", "DesiredInstanceCount": 3, "DesiredWeight": 0.5}
    cloud.sagemaker.update_endpoint_weights_and_capacities(EndpointName="e", DesiredWeightsAndCapacities=[change])
    cloud.wait_status("InService")
    cloud.create_config("config-2")

    cloud.sagemaker.update_endpoint(EndpointName="e", EndpointConfigName="config-2", RetainAllVariantProperties=True)
    (kept,) = cloud.wait_status("InService")["ProductionVariants"]
    cloud.sagemaker.update_endpoint(EndpointName="e", EndpointConfigName="config")
    (fresh,) = cloud.wait_status("InService")["ProductionVariants"]

    assert (kept["CurrentInstanceCount"], kept["CurrentWeight"]) == (3, 0.5)
    assert (fresh["CurrentInstanceCount"], fresh["CurrentWeight"]) == (1, 1.0)
