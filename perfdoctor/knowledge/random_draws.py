"""What draws at random in the job's own source: after it, a sample is another one in each epoch."""

from collections.abc import Mapping

# What draws at random: the functions of these modules, with the names that only say which sample comes next left out.
DRAWS: Mapping[str, frozenset[str]] = {
    "random": frozenset((
        "random", "uniform", "triangular", "betavariate", "expovariate", "gammavariate", "gauss", "normalvariate",
        "lognormvariate", "vonmisesvariate", "paretovariate", "weibullvariate", "getrandbits", "randint", "randrange",
    )),
    "numpy.random": frozenset((
        "rand", "randn", "randint", "random", "random_sample", "ranf", "uniform", "normal", "standard_normal",
        "beta", "binomial", "exponential", "gamma", "laplace", "lognormal", "poisson", "triangular",
    )),
    "torch": frozenset((
        "rand", "randn", "randint", "rand_like", "randn_like", "randint_like", "bernoulli", "normal", "poisson",
    )),
}  # fmt: skip
# What gives whole numbers: as the index of something it only says which.
WHOLE_NUMBERS = frozenset(("randint", "randrange", "integers"))
# What makes a generator, and its methods that draw; those of torch's are handed to its functions.
GENERATORS = frozenset(("random.Random", "random.SystemRandom", "numpy.random.default_rng", "numpy.random.RandomState"))
DRAWS_OF_GENERATORS = DRAWS["random"] | DRAWS["numpy.random"] | {"integers"}
# Methods of tensors that fill them with what they draw.
FILLS = frozenset(("uniform_", "normal_", "random_", "bernoulli_", "exponential_", "log_normal_", "cauchy_"))
# Packages whose transforms draw where their class says so by its first word.
TRANSFORMS = frozenset(("torchvision", "torchaudio", "albumentations", "kornia", "monai", "torchio"))
DRAWING_TRANSFORM = "Random"
