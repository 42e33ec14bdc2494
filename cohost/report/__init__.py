"""Store the raw samples of load tests, compute statistics from them, and write reports.

The package needs numpy, which the dependency group `load` installs; a deploy does not need that group. The modules
`formats`, `charts` and `frame` work without numpy, because the pages of forecasts use them too.
"""
