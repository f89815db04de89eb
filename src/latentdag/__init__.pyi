"""The public names, and where each one lives.

Type checkers read this file, and so does ``__init__.py``, which imports a name when it is first used. What is imported
from ``.`` or from a room (``from .data import stream``) is a module; all else is a name in the module named in full.
"""

from latentdag.data.moments import Moments as Moments
from latentdag.estimator import LatentDAG as LatentDAG
from latentdag.identification.equivalence import equivalent_models as equivalent_models
from latentdag.identification.equivalence import reduced_model as reduced_model
from latentdag.identification.identify import identify as identify
from latentdag.identification.identify import identify_partial_order as identify_partial_order
from latentdag.identification.identify import partial_order_rq as partial_order_rq
from latentdag.identification.reduce import latent_dimension as latent_dimension
from latentdag.identification.reduce import observational_contexts as observational_contexts
from latentdag.identification.reduce import reduce_contexts as reduce_contexts
from latentdag.identification.reduce import same_target_groups as same_target_groups
from latentdag.inference.bootstrap import bootstrap as bootstrap
from latentdag.inference.control import observational_context_test as observational_context_test
from latentdag.inference.membership import membership_test as membership_test
from latentdag.inference.omnibus import omnibus_test as omnibus_test
from latentdag.inference.permutation import permutation_test as permutation_test
from latentdag.inference.ranks import latent_dimension_test as latent_dimension_test
from latentdag.inference.ranks import rank_test as rank_test
from latentdag.inference.resampling import block_moments as block_moments
from latentdag.inference.shared_targets import target_groups as target_groups
from latentdag.inference.stability import Bootstrap as Bootstrap
from latentdag.inference.targets import find_targets as find_targets
from latentdag.inference.targets import off_targets as off_targets
from latentdag.methods.fitting import fit as fit
from latentdag.methods.learn import Learn as Learn
from latentdag.methods.options import Options as Options
from latentdag.methods.result import Fit as Fit
from latentdag.model.intervention import Intervention as Intervention
from latentdag.model.matching import match_to_order as match_to_order
from latentdag.model.model import LatentModel as LatentModel
from latentdag.uncertainty.changed import changed as changed
from latentdag.uncertainty.held_out import score as score

from . import datasets as datasets
from . import design as design
from . import errors as errors
from . import inference as inference
from . import methods as methods
from . import pl as pl
from . import report as report
from . import tl as tl
from . import workflow as workflow
from .data import stream as stream
from .identification import counterexamples as counterexamples
from .model import metrics as metrics
from .model import posets as posets
from .model import simulate as simulate
from .workflow import survival as survival

__version__: str
