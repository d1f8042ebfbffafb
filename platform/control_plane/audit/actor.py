"""Who is named in an audit row."""

from dataclasses import dataclass

from control_plane.audit.models import ActorKind


@dataclass(frozen=True)
class Actor:
    kind: ActorKind
    id: str
    label: str


SYSTEM = Actor(ActorKind.SYSTEM, "", "lorikeet")
