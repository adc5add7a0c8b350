"""Where a file of source draws at random, and which draws change no sample."""

from textwrap import dedent

import pytest

from perfdoctor.capture.own_source.draws import find_draws
from perfdoctor.results.edits import parse

IMPORTS = "import random, torch; import numpy as np; import torchvision.transforms as T; from random import uniform\n"


def found(source: str) -> list[tuple[int, int, bool]]:
    draws = find_draws("job.py", parse(IMPORTS + dedent(source).strip("\n")))
    return [(one.line, one.last_line, one.in_loop) for one in draws]


@pytest.mark.parametrize(
    "draw",
    [
        "random.random() < 0.5",
        "uniform(0.8, 1.2)",
        "np.random.normal(size=3)",
        "torch.rand(1).item()",
        "torch.empty(3).uniform_(-1, 1)",
        "random.randint(0, 9)",
    ],
)
def test_what_follows_a_draw_to_the_end_of_its_function(draw: str) -> None:
    assert found(f"def get(image):\n    image = decode(image)\n    how = {draw}\n    return image * how") == [
        (4, 5, False)
    ]


def test_a_generator_may_get_its_name_beside_others() -> None:
    source = """
        config, rng = Config(), np.random.default_rng(0)
        def get(image):
            return image * rng.uniform()
        def other(image):
            return image * config.uniform()
    """
    assert found(source) == [(4, 4, False)]


def test_generators_and_transforms_draw_where_they_are_used() -> None:
    source = """
        rng = np.random.default_rng(0)
        class Data:
            def __init__(self):
                self.rng = random.Random(1)
                self.augment = T.Compose([T.Resize(32), T.RandomHorizontalFlip()])
            def one(self, x):
                return x * self.rng.uniform(0, 1)
            def two(self, x):
                return self.augment(x)
            def three(self, x):
                return x + rng.normal(size=8)
            def four(self, x):
                return x.normal(size=8), self.resize(x)
        """
    assert found(source) == [(8, 8, False), (10, 10, False), (12, 12, False)]


def test_in_a_loop_it_is_the_rest_of_its_round() -> None:
    source = """
        scale = random.random()
        for image in images:
            image = decode(image)
            if random.random() < 0.5:
                image = image.flip(0)
            step(image)
        save()
        """
    assert found(source) == [(5, 7, True)]


def test_a_function_that_calls_one_which_draws_draws_too() -> None:
    source = """
        def jitter(x):
            return x * random.uniform(0.9, 1.1)
        def augment(x):
            y = jitter(x)
            return y
        def get(x):
            x = decode(x)
            x = augment(x)
            return normalise(x)
        """
    assert found(source) == [(3, 3, False), (5, 6, False), (9, 10, False)]


@pytest.mark.parametrize(
    "draw",
    [
        "random.shuffle(order)",
        "random.choice(files)",
        "np.random.permutation(9)",
        "torch.randperm(9)",
        "files[random.randrange(9)]",
        "np.sort(x)",
        "rand(3)",
    ],
)
def test_what_only_says_which_sample_comes_next_is_none(draw: str) -> None:
    assert not found(f"def get(files, order, x):\n    which = {draw}\n    return which")


def test_whole_numbers_say_which_as_an_index_and_change_the_sample_as_a_border() -> None:
    assert not found("def get(files):\n    at = random.randrange(9)\n    return decode(files[at])")
    assert found("def get(x):\n    at = random.randrange(9)\n    return x[at : at + 8]") == [(3, 4, False)]
