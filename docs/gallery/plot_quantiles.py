"""
Quantiles
=========

The noise grows from left to right. Five quantile machines show where 10, 25, 50, 75 and 90 per cent of the
targets lie below.
"""

import matplotlib.pyplot as plt
import numpy as np

import svmcore

rng = np.random.default_rng(0)
x = np.sort(rng.uniform(0.0, 6.0, 400))
y = np.sin(x) + rng.normal(size=400) * (0.05 + 0.1 * x)
at = np.linspace(0.0, 6.0, 200)[:, None]

figure, ax = plt.subplots(figsize=(7, 4.2), layout="constrained")
ax.plot(x, y, ".", color="#8C8C8C", ms=4)
for tau, colour in zip(
    [0.1, 0.25, 0.5, 0.75, 0.9], ["#56B4E9", "#0072B2", "#222222", "#D55E00", "#E69F00"], strict=True
):
    machine = svmcore.train_svr(x[:, None], y, C=5.0, gamma=0.7, loss="pinball", tau=tau)
    below = (y < machine.predict(x[:, None])).mean()
    ax.plot(at, machine.predict(at), color=colour, label=f"tau = {tau}: {below:.0%} below")
ax.legend(loc="upper right", fontsize=8)
ax.set(xlabel="x", ylabel="y", title="Quantile regression")
plt.show()
