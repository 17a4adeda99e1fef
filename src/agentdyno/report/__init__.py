"""What people read: tables, and later the report."""
