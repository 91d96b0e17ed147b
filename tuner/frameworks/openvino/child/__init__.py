"""OpenVINO in the target interpreter."""
