"""The GPUs of machines of GPU types: no devices, but NVIDIA's management library, and what stands on it."""
