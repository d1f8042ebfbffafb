"""The model whose migrations this app has; it lies in `limits`, below all that is limited."""

from control_plane.limits.models import LimitSet

__all__ = ["LimitSet"]
