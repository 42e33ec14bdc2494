"""The demo: the main use case on this machine, from cdk bootstrap through deploy, calls and changes to destroy."""
