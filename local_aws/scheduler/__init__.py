"""EventBridge Scheduler: moto stores the schedules; this package checks them and calls their targets on time."""
