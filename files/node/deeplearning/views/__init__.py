"""What there is to see: members, their load and runs, for people, Prometheus and programs; and TensorBoard."""
