"""The addresses of engine hosts, and how channels to them are secured."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc
import grpc.aio

from control_plane.core import config
from control_plane.core.secrets.keys import values_of
from control_plane.fleet.hosts.models import EngineHost
from control_plane.fleet.joining import authority
from control_plane.fleet.transport.errors import HostError
from lora_engine.wire import engine_pb2 as pb

# Maximum bytes of a message: a host's status lists every resident adapter, a usage page thousands of records, far
# over gRPC's 4 MiB default.
MAX_MESSAGE_BYTES = 64 << 20
CHANNEL_OPTIONS: list[tuple[str, int]] = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # An engine that restarts should be found again in half a second, not in gRPC's default of up to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    # The time of one attempt, with its handshake: three round trips on a slow line, or a pause of a busy engine.
    ("grpc.min_reconnect_backoff_ms", 3_000),
    # A machine that lost power closes no connection. The engine allows pings this often.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # Two clients in one process must not share a connection's fate or its flow-control window.
    ("grpc.use_local_subchannel_pool", 1),
]

Metadata = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class HostEndpoint:
    """An engine host: ``unix:/path.sock`` or ``host:port``.

    A host of the settings has a token and, for TCP, an optional CA for TLS. A host that joined has a credential, with
    which both sides authenticate by certificates of the fleet's own authority.
    """

    name: str
    address: str
    token: str = ""  # the setting's text: its first value is sent
    tls_ca: Path | None = None
    credential: str = ""

    @property
    def uses_tls(self) -> bool:
        return bool(self.credential) or (self.tls_ca is not None and not self.address.startswith("unix:"))

    @property
    def metadata(self) -> Metadata:
        return (("authorization", f"Bearer {values_of(self.token)[0]}"),) if self.token else ()

    @property
    def trust(self) -> tuple[str, ...]:
        """The authorities of the present credentials. A channel with others cannot connect for ever."""
        return tuple(authority.authority_ids()) if self.credential else ()

    def open_channel(self) -> grpc.Channel:
        """Open a blocking channel, for Celery tasks and commands."""
        if self.uses_tls:
            return grpc.secure_channel(self.address, self._credentials(), options=self._options())
        return grpc.insecure_channel(self.address, options=CHANNEL_OPTIONS)

    def open_async_channel(self) -> grpc.aio.Channel:
        """Open a channel that is bound to the running event loop."""
        if self.uses_tls:
            return grpc.aio.secure_channel(self.address, self._credentials(), options=self._options())
        return grpc.aio.insecure_channel(self.address, options=CHANNEL_OPTIONS)

    def reading(self, digest: str) -> pb.AdapterPeer:
        """Return the peer's data with which another host reads this adapter from this host, which must have joined."""
        identity = authority.reading_identity(digest)
        return pb.AdapterPeer(
            address=self.address,
            server_name=authority.server_name(self.credential),
            authority=authority.authority_certificate(),
            certificate=identity.certificate,
            key=identity.key,
        )

    def _options(self) -> list[tuple[str, int | str]]:
        if not self.credential:
            return [*CHANNEL_OPTIONS]
        return [*CHANNEL_OPTIONS, ("grpc.ssl_target_name_override", authority.server_name(self.credential))]

    def _credentials(self) -> grpc.ChannelCredentials:
        if self.credential:
            identity = authority.client_identity()
            return grpc.ssl_channel_credentials(authority.authority_certificate(), identity.key, identity.certificate)
        assert self.tls_ca is not None
        return grpc.ssl_channel_credentials(root_certificates=self.tls_ca.read_bytes())


def configured_endpoints() -> dict[str, HostEndpoint]:
    """Return the hosts of ``LORIKEET_ENGINE_HOSTS`` by name."""
    settings = config.current()
    return {
        name: HostEndpoint(name, address, settings.engine_token, settings.engine_tls_ca)
        for name, address in settings.engine_hosts.items()
    }


def known_endpoints() -> dict[str, HostEndpoint]:
    """Return the hosts of the settings, then those that joined, by name. Reads the database."""
    configured = configured_endpoints()
    joined = EngineHost.objects.filter(active=True).exclude(credential="").order_by("joined_at", "name")
    rows = joined.values_list("name", "address", "credential")
    others = {name: HostEndpoint(name, address, credential=credential) for name, address, credential in rows}
    return configured | {name: endpoint for name, endpoint in others.items() if name not in configured}


def endpoint_of(host: str) -> HostEndpoint:
    """Return a host's endpoint. Raises HostError if there is no such host."""
    endpoint = known_endpoints().get(host)
    if endpoint is None:
        raise HostError(
            "host_not_configured",
            f"Engine host {host} is neither in this process's settings nor has it joined, or its credential was "
            "revoked.",
            "Set LORIKEET_ENGINE_HOSTS to the same value for web, worker and beat, or let the host join again.",
        )
    return endpoint
