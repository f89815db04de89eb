"""The paper's single-cell workflow, step by step: a knock-out screen, its latents, and the survival of patients.

    LATENTDAG_DATA=folder-with-data python examples/workflow.py [output folder]

It uses the screen ``papalexi_thp1`` (knock-outs of interferon-γ signalling in a leukaemia cell line) and the cohort
``tcga_luad`` (lung cancer). That they are different tissues is the point to keep in mind: the workflow runs, and says
by itself how little such a transfer can carry. With the paper's own screen, replace the first lines by

    screen = ld.datasets.kras(genes="prolif_ensembl", variants="all_variants.txt")

The same in one command: ``latentdag workflow papalexi_thp1 --cohort tcga_luad --out workflow``.
"""

# ruff: noqa: T201 (an example says what it does)

import sys
from pathlib import Path

import matplotlib

import latentdag as ld
from latentdag import datasets, survival, workflow

matplotlib.use("Agg")
out = Path(sys.argv[1] if len(sys.argv) > 1 else "workflow-example")

# 1. Data. Strict guide calls: cells that certainly carry one guide.
screen = datasets.papalexi_thp1(strict=True)
cohort = datasets.tcga_luad()
print(screen, cohort, sep="\n")

# 2. Contexts and genes. Knock-outs that are known to act on these genes; of the genes that the cohort has too, the 30
#    most variable. Counts are normalised; depth and replicate are regressed out within contexts.
chosen = workflow.choose(
    screen,
    contexts=["IFNGR1", "IFNGR2", "JAK2", "STAT1", "IRF1", "SMAD4", "UBE2L6"],
    among=cohort.expression.columns,
    n_genes=30,
    adjust=["rep"],
)
m = chosen.moments()
print(m, *chosen.notes, sep="\n")

# 3. The test comes first: can every context have a single target? With the cells, it holds without Gaussian noise.
test = ld.membership_test(m, data=(chosen.X, chosen.contexts))
print(test.verdict)

# 4. The fit: fewer contexts than genes, so the other dimensions are taken as downstream. Names Z(...) keep latents
#    apart from the genes and knock-outs they are called after.
fit = ld.fit(m, targets={context: f"Z({context})" for context in m.contexts[1:]})
print(fit.summary())

# 5. Latents of patients, and one Cox regression for each; then the same for every gene, and for random mixtures.
scores = workflow.transfer_scores(fit.model, cohort.expression)
per_latent = survival.cox_table(scores, cohort.survival)
genes = cohort.expression[list(m.feature_names)]
per_gene = survival.cox_table(genes, cohort.survival)
random = survival.cox_table(workflow.random_scores(genes, 100, rng=0), cohort.survival)
print(per_latent[["hazard_ratio", "p_value", "q_value", "significant"]].round(3))
print(f"genes at the same false-discovery rate: {per_gene['significant'].sum()} of {len(per_gene)}")
print(f"random mixtures of these genes with p < 0.05: {(random['p_value'] < 0.05).mean():.0%}")

# 6. Everything at once, with the pages: what steps 2 to 5 did, and a report to open in a browser.
found = workflow.run(screen, cohort, contexts=m.contexts[1:], adjust=["rep"], progress=True)
ld.report.write(found.fit, out / "report.html", found.moments, tests=found.membership, data=found.samples)
print("wrote", workflow.write(found, out / "workflow.html", report_link="report.html"))
