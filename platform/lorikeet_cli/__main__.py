import sys

from lorikeet_cli.main import main

sys.exit(main())
