"""What a change gives up for its gain."""


def updates() -> str:
    return (
        "Its price: fewer updates for the same samples. Compare the loss by the samples that were seen; the learning "
        "rate may have to follow."
    )


def lost_work() -> str:
    return "Its price: after a crash, as many more steps have to be made again."


def coarser() -> str:
    return "Its price: the numbers scatter more."


def processes() -> str:
    return (
        "Its price: each worker takes a core while it prepares, and memory of its own; what it draws at random comes "
        "from a seed of its own."
    )


def seen_later() -> str:
    return "Its price: what it is for is known later, and more coarsely."
