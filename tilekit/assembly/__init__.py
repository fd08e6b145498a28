"""Python in, assembly text out: the writer, typed values, control flow and the fragment loader."""
