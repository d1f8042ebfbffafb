"""Views of base models, for operators and for autoscalers."""
