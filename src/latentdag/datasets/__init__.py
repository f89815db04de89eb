"""Real data: one loader each, from a folder of yours or from the public source.

=====================  ===================================================  =================================
loader                 what it is                                           control
=====================  ===================================================  =================================
:func:`light_tunnel`   a physical machine with a known causal graph         ``"reference"``
:func:`papalexi_thp1`  single-cell knock-outs of interferon-γ signalling    ``"non-targeting"``
:func:`sachs`          flow cytometry of 11 phospho-proteins, two controls  ``"cd3cd28"``, ``"cd3cd28icam2"``
:func:`kras`           single-cell screen of KRAS variants (the paper's)    ``"WT"``
:func:`tcga_luad`      expression and survival of lung cancer patients      (a cohort)
=====================  ===================================================  =================================

Every loader takes ``root=``, a folder with one sub-folder per data set; without it the environment variable
``LATENTDAG_DATA`` names that folder; without that, files are downloaded once (``pip install 'latentdag[datasets]'``),
checked and kept in the user's cache. Data come as they were published: nothing is normalised or filtered unless asked.

One module each, and one that they share:

==============  =========================================================
``chamber``     the light tunnel
``containers``  ``Screen`` and ``Cohort``: what loaders return; where data lie
``cytometry``   the protein data of Sachs et al.
``luad``        lung cancer patients
``thp1``        knock-outs in THP-1 cells
``variants``    the screen of KRAS variants
==============  =========================================================
"""

from latentdag.datasets.chamber import light_tunnel
from latentdag.datasets.containers import Cohort, Screen
from latentdag.datasets.cytometry import sachs
from latentdag.datasets.luad import tcga_luad
from latentdag.datasets.thp1 import papalexi_thp1
from latentdag.datasets.variants import kras

__all__ = ["Cohort", "Screen", "kras", "light_tunnel", "papalexi_thp1", "sachs", "tcga_luad"]
