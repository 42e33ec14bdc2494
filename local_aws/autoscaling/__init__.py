"""Application Auto Scaling: scalable targets, their policies and their scheduled actions."""
