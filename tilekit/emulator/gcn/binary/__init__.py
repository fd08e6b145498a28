"""AMD code objects: what an ELF image for a GPU holds, and its machine code as assembly text.

`decode` gives the text of a whole object; LLVM's assembler makes the same bytes of it. From the bottom up: `machine`
(chips and the header that names them), `descriptor` and `metadata` (what a launch needs to know of a kernel),
`code_object` (the ELF image), `instructions` (the machine code), `listing` (the text of it all).
"""
