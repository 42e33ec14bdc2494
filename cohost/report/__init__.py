"""Results of load tests: raw samples on disk, the statistics made from them, and reports.

Needs numpy, which comes with the dependency group `load`. A deploy machine has none; `formats`, `charts` and `frame` do
without it, and also draw the pages of forecasts.
"""
