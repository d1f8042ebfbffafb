"""Evaluation sets: prompts with expected answers, which the base model, the live and another version are scored on."""
