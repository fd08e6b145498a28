"""What is AMD GCN's alone: code objects, and the machine code in them."""
