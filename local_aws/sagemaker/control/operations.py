"""The emulated operations of SageMaker's control plane, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from local_aws.kit.named_resources import Tags
from local_aws.sagemaker.control.components import InferenceComponents
from local_aws.sagemaker.control.endpoint_configs import EndpointConfigs
from local_aws.sagemaker.control.endpoints import Endpoints, ScaledVariants
from local_aws.sagemaker.control.models import Models

if TYPE_CHECKING:
    from local_aws.kit.account import Account
    from local_aws.kit.clients import ServiceClients
    from local_aws.kit.json_protocol import Operation
    from local_aws.sagemaker.hosting.endpoint import EndpointDeployments
    from local_aws.sagemaker.hosting.inference_component import ComponentDeployments
    from local_aws.sagemaker.settings import Quotas, Settings
    from local_aws.sagemaker.state import SageMakerState

    Operations = dict[str, Operation]


def operations(
    account: Account,
    state: SageMakerState,
    *,
    clients: ServiceClients,
    settings: Settings,
    quotas: Quotas,
    endpoints: EndpointDeployments,
    components: ComponentDeployments,
) -> Operations:
    """Return the operations by name; `endpoints` and `components` carry out the changes that the operations request."""
    return {
        **_of_models(Models(account, state.models, clients)),
        **_of_configs(EndpointConfigs(state.configs, state.models, clients, settings)),
        **_of_endpoints(Endpoints(state, endpoints, quotas, ScaledVariants(clients))),
        **_of_components(InferenceComponents(account, state, components, clients)),
        **_of_tags(Tags([state.models, state.configs, state.endpoints, state.components])),
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
