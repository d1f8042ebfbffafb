"""The command line `lorikeet`: the API of the console. It needs the standard library only."""
