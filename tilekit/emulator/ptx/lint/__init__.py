"""What is wrong with a text before anything of it runs."""
