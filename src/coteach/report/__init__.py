"""The report of runs: reading their folders, their curves and tables, and the page."""
