"""Files of a model and folders of this machine: what a path is, safetensors, models grown for tests."""
