"""Random models for property tests: every size, density, convention and labelling the theorems allow."""

from hypothesis import strategies as st

from latentdag.model.simulate import random_model

seeds = st.integers(0, 2**32 - 1)


@st.composite
def models(draw, max_latents=8, kind="perfect", min_latents=1):
    d = draw(st.integers(min_latents, max_latents))
    return random_model(
        n_latents=d,
        n_features=d + draw(st.integers(0, 4)),
        density=draw(st.floats(0, 1)),
        convention=draw(st.sampled_from(["text", "figures"])),
        rng=draw(seeds),
        kind=kind,
    )
