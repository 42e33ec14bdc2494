"""Results of load tests: raw samples on disk, the statistics made from them, and reports.

The package needs numpy, which comes with the dependency group `load` and is not installed where one only deploys.
`formats`, `charts` and `frame` do without numpy; forecasts draw their pages with these modules too.
"""
