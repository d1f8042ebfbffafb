"""`make run`: start Lorikeet on this machine and print its address. Ctrl-C stops everything."""

from __future__ import annotations

import sys
from typing import Any

from scripts.launch.options import Options
from scripts.launch.progress import Progress, Stop
from scripts.launch.supervisor import Interrupted, LocalPlatform

BANNER = """
  Lorikeet is running.

    Console    {url}
    Login      {email}  ·  {password}
    API key    {key}  ·  of the tenant {tenant}
    Logs       {logs}

  Try it:

    curl {url}/v1/chat/completions \\
      -H "Authorization: Bearer {key}" \\
      -H "Content-Type: application/json" \\
      -d '{{"model": "{model}", "stream": true, "messages": [{{"role": "user", "content": "{prompt}"}}]}}'

  Ctrl-C stops it.
"""


def main() -> int:
    progress = Progress()
    try:
        platform = LocalPlatform(Options.from_environment(), progress)
    except Stop as stop:
        return _explain(stop)
    try:
        demo = platform.start()
        progress.say(banner(platform.options, demo))
        platform.watch()
    except Stop as stop:
        platform.stop()
        return _explain(stop)
    except Interrupted:
        pass
    progress.say("\n  Stopping …")
    platform.stop()
    progress.say("  Stopped. The data stays in " + str(platform.options.var))
    return 0


def banner(options: Options, demo: dict[str, Any]) -> str:
    return BANNER.format(url=options.url, logs=options.var / "log", **demo)


def _explain(stop: Stop) -> int:
    print(f"\n{stop.message}\n{stop.fix}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
