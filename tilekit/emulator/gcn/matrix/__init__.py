"""Matrix instructions: layouts of their registers and their arithmetic."""
