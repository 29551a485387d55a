"""
Regression for every C and for every epsilon
============================================

`svr_path` follows the machine while C grows, `epsilon_path` while the tube gets thinner.
"""

import matplotlib.pyplot as plt
import numpy as np

import svmcore

rng = np.random.default_rng(0)
x = np.sort(rng.uniform(0.0, 6.0, 120))
y = np.sin(x) + 0.2 * rng.normal(size=120)
X, at = x[:, None], np.linspace(0.0, 6.0, 200)[:, None]

over_C = svmcore.svr_path(X, y, epsilon=0.1, gamma=1.0, C_max=1000.0)
over_epsilon = svmcore.epsilon_path(X, y, C=10.0, gamma=1.0)
print(over_C)
print(over_epsilon)

figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), sharey=True, layout="constrained")
for ax, path, values, name in [
    (axes[0], over_C, [0.01, 0.1, 1000.0], "C"), (axes[1], over_epsilon, [0.8, 0.4, 0.05], "epsilon"),
]:  # fmt: skip
    ax.plot(x, y, ".", color="#8C8C8C", ms=4)
    for value, colour in zip(values, ["#56B4E9", "#0072B2", "#D55E00"], strict=True):
        ax.plot(at, path.predict(at, value), color=colour, label=f"{name} = {value:g}")
    ax.legend()

# %%
# The error on new data, exactly, as a function of epsilon. The best tube is neither thin nor wide.
new = np.sort(rng.uniform(0.0, 6.0, 300))
curve = over_epsilon.error_curve(new[:, None], np.sin(new))
epsilons = np.linspace(0.01, 1.0, 300)
figure, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
ax.plot(epsilons, curve(epsilons), color="#0072B2")
ax.set(xlabel="epsilon", ylabel="mean absolute error on new data")
plt.show()
