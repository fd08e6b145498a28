"""What is checked: order between waves, missing waits, wait states."""
