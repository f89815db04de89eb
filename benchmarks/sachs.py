"""What the tests say about the protein data of Sachs et al., the numbers of docs/sachs.md.

For each of the two controls: p-values of "at most two directions change" of its five inhibitors, for any noise and
taken as Gaussian, and the paper's ρ₂; the omnibus test of the contexts that pass, as by default, with hidden causes
allowed, and with these and free means; and how often "nothing changes", and "at most two directions", are refused when
the control's own cells are split at random. The data are found as ``latentdag.datasets`` finds them.

    LATENTDAG_DATA=/folder/with/data OMP_NUM_THREADS=1 .venv/bin/python benchmarks/sachs.py [--splits 200] [--seed 0]
"""

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse

import numpy as np

import latentdag as ld

CONTROLS = ("cd3cd28", "cd3cd28icam2")
SHORT = {"aktinhib": "akt", "g0076": "g0076", "ly": "ly", "psitect": "psit", "psit": "psit", "u0126": "u0126"}


def say_tests(control):
    screen = ld.datasets.sachs(control=control)
    m, data = screen.moments(), (screen.X, screen.contexts)
    test = ld.membership_test(m, data=data)
    gaussian = ld.rank_test(m, rank=2)["p_value"]
    print(f"\nInhibitors against {control}, {int(m.counts.min())} to {int(m.counts.max())} cells")
    print("inhibitor       p  rank ≤ 2  Gaussian p  rho_2")
    for context, row in test.summary.iterrows():
        name, said = SHORT[context.removeprefix(f"{control}_")], "refused" if row.reject_fwer else "passes"
        print(f"{name:9} {row.p_value:7.2g}  {said:8}  {gaussian[context]:10.2g}  {row.rho:.3f}")
    print(f"verdict: {test.verdict}")
    kept = m.select(test.summary.index[~test.summary["reject_fwer"]])
    kept_data = tuple(part[np.isin(screen.contexts, kept.contexts)] for part in data)
    default, upstream, no_means = (
        ld.omnibus_test(ld.fit(kept, unintervened=rest, means=means), kept, data=kept_data).p_value
        for rest, means in (("downstream", True), ("upstream", True), ("upstream", False))
    )
    print(f"omnibus   {default:7.1g} by default, {upstream:.1g} and {no_means:.2g} with hidden causes")


def say_splits(control, n_splits, seed):
    """A control's own cells, split: nothing differs."""
    screen = ld.datasets.sachs(control=control)
    X = screen.X[screen.contexts == control]
    rng, found = np.random.default_rng(seed), []
    for _ in range(n_splits):
        labels = np.where(rng.permutation(len(X)) < len(X) // 2, "control", "half")
        m = ld.Moments.from_samples(X, labels, "control")
        nothing, two = (ld.rank_test(m, rank=rank, data=(X, labels)).iloc[0] for rank in (0, 2))
        found.append((nothing.robust_p_value, nothing.p_value, two.robust_p_value))
    robust, gaussian, two = np.mean(np.array(found) < 0.05, axis=0)
    print(f"{control:13} {robust:12.3f} {gaussian:9.3f} {two:15.3f}")


def say_controls():
    """The two controls against each other."""
    screen = ld.datasets.sachs(control=None)
    rows = np.isin(screen.contexts, CONTROLS)
    X, labels = screen.X[rows], screen.contexts[rows]
    m = ld.Moments.from_samples(X, labels, CONTROLS[0])
    p = ld.rank_test(m, rank=2, data=(X, labels))["robust_p_value"].iloc[0]
    print(f"\nControls against each other, at most two directions: p = {p:.1g}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--splits", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(f"Sachs et al. 2005, logarithms; level 5 %, {options.splits} splits, seed {options.seed}")
    for each in CONTROLS:
        say_tests(each)
    say_controls()
    print("\nSplits of a control, share refused\ncontrol        nothing, any  Gaussian  two directions")
    for each in CONTROLS:
        say_splits(each, options.splits, options.seed)
