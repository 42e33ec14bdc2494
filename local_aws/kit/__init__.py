"""The parts that all services share; nothing in here knows a service."""
