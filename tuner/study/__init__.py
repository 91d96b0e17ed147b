"""The search: proposing settings, evaluating them, and recording the study."""
