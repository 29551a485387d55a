"""
Which words decide
==================

A linear machine on words, as a sparse matrix. The texts are made up: spam takes its words from one list, mail
from another, and both use common words.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

import svmcore

rng = np.random.default_rng(0)
common = ["the", "a", "of", "and", "to", "you", "we", "it", "is", "for"]
lists = {
    "mail": ["meeting", "agenda", "monday", "draft", "notes", "call", "review"],
    "spam": ["win", "cheap", "money", "now", "free", "offer", "prize", "click"],
}
both = [*lists["mail"], *lists["spam"]]
labels = rng.choice(["mail", "spam"], 300)
texts = [" ".join([*rng.choice(common, 12), *rng.choice(lists[label], 2), *rng.choice(both, 1)]) for label in labels]

words = TfidfVectorizer()
X = words.fit_transform(texts)
cv = svmcore.cv_path(X, labels, kernel="linear", C_max=100.0)
machine = cv.refit()
print(cv)

weights = machine.coef_.ravel()
order = np.argsort(weights)
figure, ax = plt.subplots(figsize=(7, 5), layout="constrained")
ax.barh(words.get_feature_names_out()[order], weights[order], color=np.where(weights[order] > 0, "#D55E00", "#0072B2"))
ax.set(title="weight of a word: left mail, right spam")
plt.show()
