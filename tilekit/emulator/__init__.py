"""An emulator for PTX text, whoever wrote it. Knows nothing of the framework around it."""
