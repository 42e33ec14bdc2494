"""Read, call, probe and scale a deployed endpoint, found by the outputs of its CloudFormation stack."""
