"""EventBridge Scheduler: moto keeps the schedules, this package calls their targets when they are due."""
