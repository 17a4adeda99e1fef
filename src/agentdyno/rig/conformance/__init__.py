"""What every adapter must do before it may be measured."""
