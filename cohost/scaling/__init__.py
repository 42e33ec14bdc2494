"""An endpoint's copies and instances over time: asked for, waited for, and planned by the clock."""
