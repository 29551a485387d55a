"""
Find wrong labels by leaving one out
====================================

Thirty labels are turned round on purpose. For each row: what would the machine say if the row had not been
there? The rows that are contradicted most are looked at first.
"""

import matplotlib.pyplot as plt
import numpy as np

import svmcore

X, y = svmcore.load_data("demo:spirals")
rng = np.random.default_rng(0)
wrong = rng.choice(len(y), 30, replace=False)
noisy = y.copy()
noisy[wrong] *= -1

loo = svmcore.leave_one_out(X, noisy, C=10.0, gamma=0.15)
doubt = -noisy * loo.decision_values
order = np.argsort(-doubt)
found = np.cumsum(np.isin(order, wrong))

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
left.scatter(*X.T, c=np.where(noisy > 0, "#D55E00", "#0072B2"), s=9)
left.scatter(*X[order[:30]].T, s=70, facecolors="none", edgecolors="#222222", label="the 30 most doubtful rows")
left.set(xticks=[], yticks=[])
left.legend(loc="upper right")
right.plot(np.arange(1, 101), found[:100], color="#0072B2")
right.axhline(30, color="#8C8C8C", lw=0.8)
right.set(xlabel="rows looked at, the most doubtful first", ylabel="wrong labels found")
print(f"the first 30 rows hold {found[29]} of the 30 wrong labels")
plt.show()
