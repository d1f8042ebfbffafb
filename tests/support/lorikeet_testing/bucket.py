"""An S3-compatible server on this machine (moto), with one empty bucket."""

from __future__ import annotations

import logging
import os
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from moto.server import ThreadedMotoServer  # type: ignore[import-untyped]

BUCKET = "adapters"


@contextmanager
def bucket(name: str = BUCKET) -> Iterator[str]:
    """Serve an S3 bucket; yield its URL for LORIKEET_ARTIFACT_URL. Clients' environment variables are set meanwhile."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    address = "http://{}:{}".format(*server.get_host_and_port())
    env = {
        "AWS_ENDPOINT_URL": address,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
    }
    try:
        urllib.request.urlopen(urllib.request.Request(f"{address}/moto-api/reset", method="POST")).close()
        urllib.request.urlopen(urllib.request.Request(f"{address}/{name}", method="PUT")).close()
        with mock.patch.dict(os.environ, env):
            yield f"s3://{name}/of-tests"
    finally:
        server.stop()
