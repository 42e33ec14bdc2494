"""CloudWatch: moto stores the alarms; this package stores metrics, evaluates the alarms and notifies SNS topics."""
