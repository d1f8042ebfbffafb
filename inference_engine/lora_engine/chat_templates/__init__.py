"""Chat templates: the environment that they are rendered in, and processes with limits for those of adapters."""

from .environment import CompiledTemplate, TemplateSyntaxError
from .limited import TooCostlyError, in_limited_fork
from .renderer import TemplateProcess, TemplateRefusalError

__all__ = [
    "CompiledTemplate",
    "TemplateProcess",
    "TemplateRefusalError",
    "TemplateSyntaxError",
    "TooCostlyError",
    "in_limited_fork",
]
