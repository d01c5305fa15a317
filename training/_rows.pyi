def gather(
    columns: int, starts: int, count: int, rows: int, table: int, dim: int, out: int, line: int, threads: int, /
) -> None: ...
def weigh(columns: int, starts: int, count: int, rows: int, weights: int, out: int, threads: int, /) -> None: ...
def distinct(columns: int, count: int, inverse: int, ids: int, found: int, threads: int, /) -> None: ...
def sums(
    columns: int, count: int, plan: int, grad: int, line: int, dim: int, out: int, rows: int, threads: int, /
) -> None: ...
def adagrad(
    rows: int,
    grads: int,
    count: int,
    dim: int,
    weights: int,
    sums: int,
    width: int,
    lr: float,
    eps: float,
    decay: float,
    threads: int,
    /,
) -> None: ...
def adam(
    rows: int,
    grads: int,
    count: int,
    dim: int,
    weights: int,
    means: int,
    squares: int,
    lr: float,
    first: float,
    second: float,
    correction: float,
    eps: float,
    decay: float,
    threads: int,
    /,
) -> None: ...
def ftrl(
    rows: int,
    grads: int,
    count: int,
    dim: int,
    weights: int,
    zs: int,
    ns: int,
    lr: float,
    l1: float,
    l2: float,
    beta: float,
    examples: float,
    threads: int,
    /,
) -> None: ...
