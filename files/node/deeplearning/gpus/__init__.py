"""The GPUs of a node: what NVIDIA's library says of them, and what is wrong with them."""
