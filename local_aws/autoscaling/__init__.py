"""Application Auto Scaling: scalable targets, policies, scheduled actions and scaling activities."""
