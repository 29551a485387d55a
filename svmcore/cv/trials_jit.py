"""Folds and scores of many labellings at once, in loops over rows. For one labelling they are those of scikit-learn."""

from __future__ import annotations

from svmcore.compiler.jit import jit

ACCURACY, BALANCED, AUC, R2, CORRELATION, SQUARED = range(6)

UNKNOWN = float("nan")  # the score of a fold that has none


@jit
def stratify(codes, n_classes, n_folds, room, out):
    """The folds of StratifiedKFold(n_folds) without shuffling, for labels 0 .. n_classes - 1 in every row of `codes`.

    Classes count in the order in which they appear. Dealt out in that order, one row after the other, they say how many rows
    of each class a fold takes; the first ones of the class go to the first fold.

    In place: out, and room for 3 + n_folds whole numbers a class.
    """
    count, order, fold_of, left = room[0], room[1], room[2], room[3:]
    n = codes.shape[1]
    for p in range(codes.shape[0]):
        found = 0
        for c in range(n_classes):
            count[c] = 0
            fold_of[c] = 0
            for f in range(n_folds):
                left[f, c] = 0
        for t in range(n):
            c = codes[p, t]
            if count[c] == 0:
                order[found] = c
                found += 1
            count[c] += 1
        place = 0
        for k in range(found):
            c = order[k]
            each, rest = count[c] // n_folds, count[c] % n_folds
            for f in range(n_folds):
                left[f, c] = each
            for r in range(rest):
                left[(place + r) % n_folds, c] += 1
            place += count[c]
        for t in range(n):
            c = codes[p, t]
            f = fold_of[c]
            while left[f, c] == 0:
                f += 1
            fold_of[c] = f
            left[f, c] -= 1
            out[p, t] = f


@jit
def _of_classes(values, decisions, row, fold, balanced):
    """The share of rows whose decision value is on the side of their label, over all rows of a fold or as a mean of both."""
    above, below, right_above, right_below = 0, 0, 0, 0
    for t in range(row.shape[0]):
        own = row[t] == fold
        plus, minus = own & (values[t] > 0.0), own & (values[t] < 0.0)
        above += plus
        below += minus
        right_above += plus & (decisions[t] > 0.0)
        right_below += minus & (decisions[t] <= 0.0)
    if not balanced:
        return (right_above + right_below) / (above + below) if above + below > 0 else UNKNOWN
    if above == 0 or below == 0:
        count, right = above + below, right_above + right_below
        return right / count if count > 0 else UNKNOWN
    return 0.5 * (right_below / below + right_above / above)


@jit
def _auc(values, decisions, row, fold):
    """The share of pairs of a fold in which the label 1 has the larger decision value. Equal values count half."""
    wins, above, below = 0.0, 0, 0
    for t in range(row.shape[0]):
        if row[t] == fold and values[t] > 0.0:
            above += 1
            x, below = decisions[t], 0
            for s in range(row.shape[0]):
                own = (row[s] == fold) & (values[s] < 0.0)
                wins += 0.5 * own * ((x > decisions[s]) + 0.0) + 0.5 * own * ((x >= decisions[s]) + 0.0)
                below += own
    return wins / (above * below) if above * below > 0 else UNKNOWN


@jit
def _of_numbers(values, decisions, row, fold, kind):
    """R2, the correlation, or minus the mean squared error of a fold."""
    count, sum_y, sum_f = 0, 0.0, 0.0
    for t in range(row.shape[0]):
        own = row[t] == fold
        count += own
        sum_y += values[t] if own else 0.0
        sum_f += decisions[t] if own else 0.0
    if count == 0:
        return UNKNOWN
    mean_y, mean_f = sum_y / count, sum_f / count
    yy, ff, yf, error = 0.0, 0.0, 0.0, 0.0
    for t in range(row.shape[0]):
        own = row[t] == fold
        y, f = values[t] - mean_y if own else 0.0, decisions[t] - mean_f if own else 0.0
        yy += y * y
        ff += f * f
        yf += y * f
        miss = values[t] - decisions[t] if own else 0.0
        error += miss * miss
    if kind == SQUARED:
        return -error / count
    if kind == CORRELATION:
        return yf / (yy * ff) ** 0.5 if yy * ff > 0.0 else UNKNOWN
    if yy == 0.0:
        return 1.0 if error == 0.0 else 0.0
    return 1.0 - error / yy


@jit
def judge(kind, values, decisions, each, folds, n_folds, out):
    """The score of every fold, for decision values of which `each` neighbouring rows belong to one row of `values`.

    In place: out, (rows of decisions, n_folds).
    """
    for r in range(decisions.shape[0]):
        p = r // each
        row = folds[min(p, folds.shape[0] - 1)]
        for f in range(n_folds):
            if kind == AUC:
                out[r, f] = _auc(values[p], decisions[r], row, f)
            elif kind == ACCURACY or kind == BALANCED:
                out[r, f] = _of_classes(values[p], decisions[r], row, f, kind == BALANCED)
            else:
                out[r, f] = _of_numbers(values[p], decisions[r], row, f, kind)
