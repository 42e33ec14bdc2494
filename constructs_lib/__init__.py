"""CDK constructs of lmi-cohost, one responsibility each."""
