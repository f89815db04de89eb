"""The model in words: what it is, its exact law, random draws of it, and how far two of them are apart.

``model``         the linear latent causal model: unmixing, structural equations, interventions
``intervention``  what a context does to the latents it targets, and the names that latents get from contexts
``distribution``  the exact law in one context, seen or not: moments, samples, noises, likelihood of data
``simulate``      random models by the paper's recipe, and sample moments at any sample size
``metrics``       how far an estimate is from the truth
``matching``      the integer program over S(G) that aligns an estimate with the truth
``posets``        partial orders as boolean matrices: closure, reduction, linear extensions
"""
