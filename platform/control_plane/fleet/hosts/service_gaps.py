"""How far apart a host's tenants were served, beside what the order allows: the widest of each minute and hour.

Looked at with every heartbeat while two tenants or more wait. Written by the watcher alone.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import transaction

from control_plane.core.jobs import clocks
from control_plane.fleet.hosts.models import EngineHost, ServiceGap
from lora_engine.wire import engine_pb2 as pb

# By the minutes of a step; a little more than charts go back.
KEPT = {1: timedelta(days=2, hours=2), 60: timedelta(days=91)}


@transaction.atomic
def record(host_name: str, gap: pb.ServiceGap, now: datetime | None = None) -> None:
    """Keep a gap if none of its minute, or of its hour, was nearer to its bound."""
    at = now or clocks.database_time()
    host, minute = EngineHost.objects.only("pk").get(name=host_name), int(at.timestamp() // 60)
    seen = {"gap": gap.gap, "bound": gap.bound, "share": gap.gap / gap.bound, "ahead": gap.ahead, "behind": gap.behind}
    for step, kept in KEPT.items():
        row = ServiceGap.objects.filter(host=host, step=step, start=minute // step * step)
        if row.exists():
            row.filter(share__lt=seen["share"]).update(**seen)
        else:
            ServiceGap.objects.create(host=host, step=step, start=minute // step * step, **seen)
            if clocks.is_trusted():
                oldest = minute - kept // timedelta(minutes=1)
                ServiceGap.objects.filter(host=host, step=step, start__lt=oldest).delete()
