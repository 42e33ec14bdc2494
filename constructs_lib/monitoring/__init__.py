"""The alarms, the dashboard and the budget of an endpoint."""
