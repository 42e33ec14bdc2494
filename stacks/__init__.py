"""The CDK stacks: they connect the constructs, grant rights between them, and add the outputs."""
