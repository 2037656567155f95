"""What tests need of the local cloud: the only part of this package that code outside may import."""
