"""What each instruction does, a file for each chapter of the PTX ISA; imported, they register their forms."""
