"""
Gaussian-process regression
===========================

The mean and its uncertainty, by conjugate gradients with bounds from both sides.
"""

import matplotlib.pyplot as plt
import numpy as np

import svmcore

rng = np.random.default_rng(0)
x = np.concatenate([rng.uniform(0.0, 2.5, 40), rng.uniform(4.0, 6.0, 40)])
y = np.sin(x) + 0.1 * rng.normal(size=80)
gp = svmcore.gp_regression(x[:, None], y, noise=0.01, gamma=0.5)
print(gp)

at = np.linspace(-0.5, 7.0, 200)[:, None]
mean, deviation = gp.predict(at, return_std=True)
figure, ax = plt.subplots(figsize=(7, 4.2), layout="constrained")
ax.fill_between(
    at[:, 0], mean - 2 * deviation, mean + 2 * deviation, color="#56B4E9", alpha=0.4, label="two deviations"
)
ax.plot(at, mean, color="#0072B2", label="mean")
ax.plot(x, y, ".", color="#222222", ms=4)
ax.legend()
plt.show()
