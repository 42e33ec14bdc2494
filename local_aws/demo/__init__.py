"""The demo (`make demo`): cdk bootstrap, deploy, calls, changes and destroy against the local AWS emulator."""
