"""How a checkout becomes a running Lorikeet on one machine.

`setup` prepares (before anything is installed: standard library only),
`supervisor` starts, watches and stops the processes.
"""
