"""The operations of the control plane that the emulation has, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from local_aws.kit.named_resources import Tags
from local_aws.sagemaker.control.components import InferenceComponents
from local_aws.sagemaker.control.endpoint_configs import EndpointConfigs
from local_aws.sagemaker.control.endpoints import Endpoints, ScaledVariants
from local_aws.sagemaker.control.models import Models

if TYPE_CHECKING:
    from local_aws.kit.account import Account
    from local_aws.kit.json_protocol import Operation
    from local_aws.sagemaker.hosting.endpoint import Deployments
    from local_aws.sagemaker.hosting.host import Host
    from local_aws.sagemaker.hosting.inference_component import ComponentDeployments
    from local_aws.sagemaker.state import Records

    Operations = dict[str, Operation]


def operations(
    account: Account, records: Records, host: Host, deployments: Deployments, components: ComponentDeployments
) -> Operations:
    """Everything that can be asked of the account's records; the deployments carry changes out."""
    return {
        **_of_models(Models(account, records.models, host.clients)),
        **_of_configs(EndpointConfigs(records.configs, records.models, host.clients, host.settings)),
        **_of_endpoints(Endpoints(records, deployments, host.quotas, ScaledVariants(host.clients))),
        **_of_components(InferenceComponents(account, records, components, host.clients)),
        **_of_tags(Tags([records.models, records.configs, records.endpoints, records.components])),
    }


def _of_models(models: Models) -> Operations:
    return {
        "CreateModel": models.create,
        "DescribeModel": models.describe,
        "ListModels": models.list,
        "DeleteModel": models.delete,
    }


def _of_configs(configs: EndpointConfigs) -> Operations:
    return {
        "CreateEndpointConfig": configs.create,
        "DescribeEndpointConfig": configs.describe,
        "ListEndpointConfigs": configs.list,
        "DeleteEndpointConfig": configs.delete,
    }


def _of_endpoints(endpoints: Endpoints) -> Operations:
    return {
        "CreateEndpoint": endpoints.create,
        "DescribeEndpoint": endpoints.describe,
        "ListEndpoints": endpoints.list,
        "UpdateEndpoint": endpoints.update,
        "UpdateEndpointWeightsAndCapacities": endpoints.rescale,
        "DeleteEndpoint": endpoints.delete,
    }


def _of_components(components: InferenceComponents) -> Operations:
    return {
        "CreateInferenceComponent": components.create,
        "DescribeInferenceComponent": components.describe,
        "ListInferenceComponents": components.list,
        "UpdateInferenceComponent": components.update,
        "UpdateInferenceComponentRuntimeConfig": components.update_runtime,
        "DeleteInferenceComponent": components.delete,
    }


def _of_tags(tags: Tags) -> Operations:
    return {"AddTags": tags.add, "ListTags": tags.list, "DeleteTags": tags.delete}
