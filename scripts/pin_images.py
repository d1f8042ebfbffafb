"""`python -m scripts.pin_images`: pin the images of others by the digests that their tags have now.

Reads docker-compose.yml and the Dockerfiles, asks each image's registry through its HTTP API (OCI distribution), and
writes `name:tag@sha256:…`. Run it again to follow a tag that its owner moved, for example after a fix in its system.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

from scripts.launch.paths import ROOT
from scripts.launch.progress import Stop

FILES = ("docker-compose.yml", "docker/web.Dockerfile", "docker/engine.Dockerfile")
# An image with a tag, and perhaps a digest; ours, `lorikeet/…`, are built here.
REFERENCE = re.compile(
    r"(?m)^(?P<before>\s*image: |FROM )(?P<name>(?!lorikeet/)[a-z0-9./:-]*[a-z0-9]):(?P<tag>[\w.-]+)"
    r"(?:@sha256:[0-9a-f]{64})?(?= |$)"
)
DOCKER_HUB = "registry-1.docker.io"
# An index of several platforms first, so that one digest holds for all of them.
ACCEPT = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
_TIMEOUT_S = 30.0
_MAX_BYTES = 4 << 20


def place_of(name: str) -> tuple[str, str]:
    """Return the registry and the repository of an image's name, as Docker reads it."""
    first, slash, rest = name.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return first, rest
    return DOCKER_HUB, name if slash else f"library/{name}"


def digest_of(name: str, tag: str) -> str:
    """Return the digest that a tag has in its registry. Raises Stop."""
    registry, repository = place_of(name)
    scheme = "http" if registry.partition(":")[0] in ("localhost", "127.0.0.1") else "https"
    url = f"{scheme}://{registry}/v2/{repository}/manifests/{tag}"
    try:
        body, stated = _manifest(url, repository)
    except (OSError, ValueError, KeyError) as error:
        raise Stop(f"{name}:{tag} cannot be resolved: {error}.", "Check the tag and the network.") from None
    digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
    if stated and stated != digest:
        raise Stop(f"{name}:{tag}: the registry states {stated}, but its manifest has {digest}.", "Try again later.")
    return digest


def _manifest(url: str, repository: str) -> tuple[bytes, str]:
    try:
        return _get(url, {"Accept": ACCEPT})
    except urllib.error.HTTPError as error:
        challenge = error.headers.get("WWW-Authenticate", "")
        if error.code != 401 or not challenge.startswith("Bearer "):
            raise
    fields = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
    query = {"service": fields.get("service", ""), "scope": fields.get("scope") or f"repository:{repository}:pull"}
    answer = json.loads(_get(f"{fields['realm']}?{urllib.parse.urlencode(query)}", {})[0])
    token = answer.get("token") or answer["access_token"]
    return _get(url, {"Accept": ACCEPT, "Authorization": f"Bearer {token}"})


def _get(url: str, headers: dict[str, str]) -> tuple[bytes, str]:
    if not url.startswith(("https://", "http://localhost", "http://127.0.0.1")):
        raise ValueError(f"{url} is not https")
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=_TIMEOUT_S) as answer:
        return answer.read(_MAX_BYTES), answer.headers.get("Docker-Content-Digest", "")


def pinned(text: str, resolve: Callable[[str, str], str]) -> str:
    """Return the text of a file with the digest of each image that has a tag."""
    return REFERENCE.sub(
        lambda match: "{before}{name}:{tag}".format_map(match.groupdict()) + f"@{resolve(match['name'], match['tag'])}",
        text,
    )


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.pin_images", description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="only report files whose digests are missing or old")
    args = parser.parse_args(arguments)
    try:
        # All are resolved before a file is written, so that a failure leaves none half pinned.
        new = {name: pinned((root / name).read_text(), digest_of) for name in FILES}
    except Stop as stop:
        print(f"{stop.message}\n{stop.fix}", file=sys.stderr)
        return 1
    changed = [name for name, text in new.items() if text != (root / name).read_text()]
    for name in changed:
        if not args.check:
            (root / name).write_text(new[name])
        print(f"{name}: {'has missing or old digests' if args.check else 'pinned'}")
    return 1 if changed and args.check else 0


if __name__ == "__main__":
    sys.exit(main())
