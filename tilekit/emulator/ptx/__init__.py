"""What is PTX's: the language, its instructions, warps, CTAs and clusters, mbarriers, tensor maps, proxies.

From the bottom up, each importing only what is before it: `chips`, `arithmetic`, `language`; `checks`; `memory`;
`synchronisation`; `copies`; `matrix`; `execution`; `compiler`; `ops`; `lint`. Then a launch from the inside out:
`launch`, `arguments`, `observation`, `kernel`, `module`, `device`. What is below knows the types of what is above in
annotations alone.
"""
