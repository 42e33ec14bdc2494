"""Scaling, acted out: metrics over time, CloudWatch's alarms and Application Auto Scaling, on a clock of their own."""
