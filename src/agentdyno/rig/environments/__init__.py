"""What runs are made of: each environment, its lock and its builder, and the adapters' folders."""
