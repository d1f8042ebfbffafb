"""The setup and the processes of a Lorikeet that runs from this checkout on one machine.

`setup` prepares the checkout, with the standard library only, because nothing is installed yet. `supervisor` starts,
watches and stops the processes.
"""
