"""Dated prices as data: sagemaker_hosting.json, rewritten by `cohost prices refresh`."""
