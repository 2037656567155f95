"""An AWS on one machine: moto's API with real booted machines behind it."""
