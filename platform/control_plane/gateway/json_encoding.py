"""JSON as it goes to clients: compact, and text as it is."""

from __future__ import annotations

import json

encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
