"""What PTX text says: tokens, modules, instruction forms, what a target has."""
