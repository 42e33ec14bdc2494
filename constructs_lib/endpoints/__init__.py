"""The endpoints of each topology and design, their scaling, and the guardrails of their updates."""
