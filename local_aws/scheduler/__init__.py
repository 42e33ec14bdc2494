"""EventBridge Scheduler: moto keeps the schedules, this package checks them and calls their targets in time."""
