"""`lorikeet`, the command line of the same API as the console's. It needs the standard library only."""
