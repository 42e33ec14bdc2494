"""The main use case from beginning to end on this machine: deploy, call, change, add a model, roll and remove."""
