"""What is PTX's: the language, its instructions, warps, CTAs and clusters, mbarriers, tensor maps, proxies."""
