"""The CDK constructs of lmi-cohost, each with one responsibility."""
