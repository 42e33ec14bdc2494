"""CloudWatch: moto keeps alarms, this package keeps metrics, evaluates the alarms and notifies."""
