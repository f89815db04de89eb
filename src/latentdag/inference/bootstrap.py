"""The bootstrap: how much of a fit comes back when the data are drawn again.

Every replicate is new moments (:mod:`latentdag.inference.resampling`) and a fit of them that starts where the original
ended (:mod:`latentdag.inference.replicates`). Latents are named after the contexts that target them, so
replicates need no matching: the same name is the same latent, and whether it also is the same direction in the features
is one of the results (:mod:`latentdag.inference.stability`).

Percentile intervals and frequencies are those of the whole procedure, the search for a graph included. Replicates are
drawn from the fitted model, which has the sampling error of one experiment. The moments of the data are its law and
that error once more: drawn around them (``source="moments"``), or dealt from the samples (``kind="samples"``), a
replicate has the noise of two experiments, and edges that are noise come up more often than they would in new data.
"""

import json
import os
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils.parallel import Parallel, delayed
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from latentdag import __version__
from latentdag.data.checks import check_choice, check_design, whole_number
from latentdag.data.moments import Moments
from latentdag.data.sources.reader import digest
from latentdag.errors import clear_numerics
from latentdag.inference.replicates import Checkpoint, Piece, Reference, refit
from latentdag.inference.resampling import Blocks, Gaussian, block_moments
from latentdag.inference.stability import Bootstrap
from latentdag.methods.fitting import fit as fit_moments
from latentdag.methods.options import Options
from latentdag.methods.result import Fit
from latentdag.model.model import LatentModel
from latentdag.progress import Progress


@clear_numerics
def bootstrap(
    m: Moments,
    n_replicates: int = 200,
    kind: str = "parametric",
    *,
    source: str = "model",
    data: Any = None,
    n_blocks: int = 50,
    fit: Fit | None = None,
    rng: Any = 0,
    n_jobs: int = 1,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    **fit_options: Any,
) -> Bootstrap:
    """Fit data that might have been, and say how stable edges, order and targets are.

    The answer depends on the moments, the options and the seed. It does not depend on the number of workers, on
    interruptions, on the order of the contexts, nor on the order of the (named) features. The paper has no measure of
    uncertainty; this one covers all of a fit, the choice of the graph included.

    Parameters
    ----------
    m : Moments
        Of K + 1 contexts and p features.
    n_replicates : int
    kind : "parametric" or "samples"
        Draw new moments from a Gaussian law (needs nothing but ``m``), or add up blocks of the samples drawn with
        replacement (needs ``data``; holds without Gaussianity).
    source : "model" or "moments"
        For "parametric": draw from the law of the fitted model, or, where the model does not fit, around the moments as
        they are. The moments hold one sampling error already, so the second adds noise to noise, as "samples" does.
    data : (X, contexts), a list of such pairs, or Blocks
        For "samples": the samples (n, p) that ``m`` came from and the context of each row, or what
        :func:`latentdag.block_moments` made of them.
    n_blocks : int
        For "samples"; memory is ``8 (K + 1) n_blocks p (p + 1) / 2`` bytes.
    fit : Fit, optional
        The fit in question, if it was made before: replicates are fitted with its options.
    rng : int or Generator
        The seed; replicate b draws the same numbers however many replicates there are.
    n_jobs : int
        Worker processes; −1 for one per core. Each uses one BLAS thread.
    checkpoint : path, optional
        A folder for finished replicates. Called again with the same arguments, an interrupted bootstrap goes on where
        it was, and one that was finished can be given more replicates.
    progress : bool, optional
        Show a bar on stderr; by default only where that is a terminal.
    **fit_options
        As for :func:`latentdag.fit`; with ``fit``, they replace those it was made with.

    Returns
    -------
    Bootstrap
        Replicates that could not be fitted are counted in ``failures``, warnings of the others in ``warnings``.

    Examples
    --------
    >>> from latentdag import simulate
    >>> truth = simulate.random_model(n_latents=2, n_features=3, density=1, rng=0)
    >>> m = simulate.sample_moments(truth, 2_000, rng=0)
    >>> found = bootstrap(m, 20)
    >>> found.edges[["source", "target", "count"]].to_string(index=False, header=False).split()
    ['c1', 'c2', '20']
    """
    check_design(m)
    n_replicates = whole_number("n_replicates", n_replicates, 1)
    if not isinstance(n_jobs, int) or n_jobs == 0:
        raise ValueError(f"n_jobs must be a whole number other than 0 (−1 for one per core), got {n_jobs!r}")
    _check_kind(kind, source, data)
    seed = _seed(rng, checkpoint)
    told = {**(fit.options if fit is not None else {}), **fit_options}
    options = Options.named(told.pop("method", "likelihood"), told)
    draws = _blocks(m, data, n_blocks) if kind == "samples" else Gaussian.of(m)
    identity = {
        "latentdag version": __version__,
        "data": draws.digest(),
        "kind": kind if kind == "samples" else f"{kind} around the {source}",
        "options": repr(options),
        "fit": "of these data" if fit is None else _fingerprint(fit.model),
        "seed": str(seed),
    }
    store = None if checkpoint is None else Checkpoint(checkpoint, identity)
    with threadpool_limits(1):  # the last digits of a product depend on the number of threads
        if fit is None:
            fit = store.original(lambda: fit_moments(m, **options)) if store else fit_moments(m, **options)
        settled = replace(options, **fit.settled_options) if options.method == "likelihood" else options
        reference = Reference.of(fit, m, settled)
        if kind == "parametric" and source == "model":
            draws = Gaussian.of(m, fit.model)
        pieces = _replicates(draws, reference, seed, n_replicates, n_jobs, store, progress)
    settings = {
        "kind": kind,
        "source": source if kind == "parametric" else "samples",
        "seed": seed,
        "n_replicates": n_replicates,
        "method": fit.method,
        "options": identity["options"],
    }
    return _collect(reference, pieces, settings)


def _replicates(
    draws: Gaussian | Blocks,
    reference: Reference,
    seed: int,
    n: int,
    n_jobs: int,
    store: Checkpoint | None,
    progress: bool | None,
) -> list[Piece]:
    """Return n replicates: those that the folder has, and fits of new draws for the others."""
    d = reference.model.n_latents
    kept = {b: store.read(b, d) for b in range(n)} if store else {}
    pieces = {b: piece for b, piece in kept.items() if piece is not None}
    todo = [b for b in range(n) if b not in pieces]
    with Progress("bootstrap", n, progress) as bar:
        bar.advance(len(pieces))
        # draws are made here, one after the other; only fits go to the workers
        calls = (delayed(refit)(draws.draw(seed, b), reference) for b in todo)
        for b, piece in zip(todo, Parallel(n_jobs=n_jobs, return_as="generator")(calls), strict=True):
            pieces[b] = piece
            if store is not None:
                store.write(b, piece)
            bar.advance()
    return [pieces[b] for b in range(n)]


def _collect(reference: Reference, pieces: list[Piece], settings: dict[str, Any]) -> Bootstrap:
    """Stack the replicates that were fitted, and count what went wrong in the others."""
    failures = {b: meta["failure"] for b, (_, meta) in enumerate(pieces) if meta["failure"] is not None}
    if len(failures) == len(pieces):
        raise ValueError(f"none of the {len(pieces)} replicates could be fitted; the first: {failures[0]}")
    numbers = np.array([b for b in range(len(pieces)) if b not in failures])
    stacked = {name: np.array([pieces[b][0][name] for b in numbers]) for name in pieces[numbers[0]][0]}
    raised = Counter(name for _, meta in pieces for name in meta["warnings"])
    model = reference.model
    targeting = [[str(c) for c, v in model.interventions.items() if name in v.targets] for name in model.latents]
    return Bootstrap(
        tuple(model.latents),
        tuple(", ".join(contexts) for contexts in targeting),
        *reference.scaled_weights(model, reference.edges),
        reference.closure,
        replicates=numbers,
        failures=failures,
        warnings=dict(sorted(raised.items())),
        settings=settings,
        **stacked,
    )


def _check_kind(kind: str, source: str, data: Any) -> None:
    """Check that the data fit the kind of bootstrap."""
    check_choice("kind", kind, ("parametric", "samples"))
    check_choice("source", source, ("model", "moments"))
    if kind == "samples" and data is None:
        raise ValueError("kind='samples' draws from the samples: pass data=(X, contexts), or use kind='parametric'")
    if kind == "parametric" and data is not None:
        raise ValueError("kind='parametric' uses no samples: leave data out, or say kind='samples'")


def _seed(rng: Any, checkpoint: Any) -> int:
    """Return the seed: the number itself, or one drawn from a generator."""
    if rng is None and checkpoint is not None:
        raise ValueError("a bootstrap that can go on after an interruption needs a seed: rng=0, for example")
    if isinstance(rng, int | np.integer) and not isinstance(rng, bool):
        if rng < 0:
            raise ValueError(f"a seed is not negative, got {rng}")
        return int(rng)
    return int(np.random.default_rng(rng).integers(2**63))


def _blocks(m: Moments, data: Any, n_blocks: int) -> Blocks:
    """Return blocks of the samples, and check blocks that were made before."""
    if not isinstance(data, Blocks):
        return block_moments(data, m, n_blocks)
    if data.of.contexts != m.contexts or not np.array_equal(data.of.covariances, m.covariances):
        raise ValueError("these blocks were made for other moments: make them again with block_moments(data, m)")
    return data


def _fingerprint(model: LatentModel) -> str:
    """Return a short hash of a model."""
    arrays, meta = model.to_parts()
    named = [part for name in sorted(arrays) for part in (name, arrays[name])]
    return digest(json.dumps(meta, sort_keys=True), *named)
