"""SageMaker on one machine: control plane, runtime, and endpoints whose containers really serve."""

from local_aws.sagemaker.service import SageMaker
from local_aws.sagemaker.settings import Settings

__all__ = ["SageMaker", "Settings"]
