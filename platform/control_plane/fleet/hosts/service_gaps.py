"""The widest gap in service between a host's tenants in each minute and hour, with the bound of its queue policy.

Recorded with every heartbeat while two tenants or more wait, by the watcher alone.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import transaction

from control_plane.core.jobs import clocks
from control_plane.fleet.hosts.models import EngineHost, ServiceGap
from lora_engine.wire import engine_pb2 as pb

# Time for which a gap is kept, by the minutes of its step: a little longer than the console's charts go back.
RETENTION = {1: timedelta(days=2, hours=2), 60: timedelta(days=91)}


@transaction.atomic
def record(host_name: str, gap: pb.ServiceGap, now: datetime | None = None) -> None:
    """Keep a gap unless one of the same minute, or of the same hour, was nearer to its bound."""
    at = now or clocks.database_time()
    host, minute = EngineHost.objects.only("pk").get(name=host_name), int(at.timestamp() // 60)
    seen = {"gap": gap.gap, "bound": gap.bound, "share": gap.gap / gap.bound, "ahead": gap.ahead, "behind": gap.behind}
    for step, retention in RETENTION.items():
        row = ServiceGap.objects.filter(host=host, step=step, start=minute // step * step)
        if row.exists():
            row.filter(share__lt=seen["share"]).update(**seen)
        else:
            ServiceGap.objects.create(host=host, step=step, start=minute // step * step, **seen)
            if clocks.is_trusted():
                oldest = minute - retention // timedelta(minutes=1)
                ServiceGap.objects.filter(host=host, step=step, start__lt=oldest).delete()
