"""A latent has no name of its own: it is called after the contexts that target it."""

from collections.abc import Hashable, Mapping, Sequence

from latentdag.data.labels import text_names


def latent_names(n_latents: int, targets: Mapping[Hashable, Sequence[int]]) -> list[str]:
    """Name each latent after the contexts that target it alone, else after all that target it.

    Parameters
    ----------
    n_latents : int
    targets : mapping of context label to the rows it targets

    Examples
    --------
    >>> latent_names(4, {"A": [0], "B": [2], "B2": [2], "A+C": [0, 1]})
    ['A', 'A+C', 'B|B2', 'latent 4']
    """
    texts = dict(zip(targets, text_names(list(targets)), strict=True))
    hitting: list[list[Hashable]] = [[] for _ in range(n_latents)]
    for context, rows in targets.items():
        for i in rows:
            hitting[i].append(context)
    names: list[str] = []
    for i, hits in enumerate(hitting):
        alone = [context for context in hits if len(targets[context]) == 1]
        name = "|".join(texts[context] for context in alone or hits) or f"latent {i + 1}"
        # several latents hit by the very same contexts need a number to tell them apart
        names.append(name if name not in names else f"{name} #{sum(n.split(' #')[0] == name for n in names) + 1}")
    return names
