"""HTTP: the table of routes, the front door, raw routes and the control plane. Imports no page."""
