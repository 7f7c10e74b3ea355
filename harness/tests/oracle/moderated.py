"""Moderated variances by an independent path: prints the cases of src/stats/moderated.rs.

Smyth 2004, section 6.2 with unequal degrees of freedom and the limit of the pooled ones,
as limma's squeezeVar and eBayes do it. Shares nothing with the Rust code: scipy's
polygamma, a general root finder, and vectors instead of loops. Needs numpy and scipy:

    python3 harness/tests/oracle/moderated.py

Written with numpy 2.4.6 and scipy 1.17.1.
"""

import numpy as np
from scipy.optimize import brentq
from scipy.special import digamma, polygamma


def squeeze(variances, df, largest_prior=np.inf):
    s2, d = np.asarray(variances, float), np.asarray(df, float)
    e = np.log(s2) - digamma(d / 2) + np.log(d / 2)
    excess = e.var(ddof=1) - polygamma(1, d / 2).mean()
    if excess > 0:
        half = brentq(lambda x: polygamma(1, x) - excess, 1e-8, 1e12, xtol=1e-14, rtol=1e-14)
        prior_df = 2 * half
        prior = np.exp(e.mean() + digamma(half) - np.log(half))
    else:
        prior_df, prior = np.inf, (d * s2).sum() / d.sum()
    lent = np.minimum(prior_df, largest_prior * d)
    if np.isinf(lent).any():
        posterior = np.full_like(s2, prior)
    else:
        posterior = (d * s2 + lent * prior) / (d + lent)
    return prior_df, prior, posterior, np.minimum(d + lent, d.sum())


CASES = {
    "spread": ([0.2, 0.5, 1.0, 1.5, 2.0, 4.0, 9.0, 0.05], [9] * 8),
    "unequal": ([0.2, 0.5, 1.0, 1.5, 2.0, 4.0, 9.0, 0.05], [5, 9, 9, 7, 4, 9, 19, 3]),
    "alike": ([1.0, 1.1, 0.9, 1.05, 0.95, 1.0, 1.2, 0.8], [5, 9, 9, 7, 5, 9, 9, 9]),
}

if __name__ == "__main__":
    for name, (s2, d) in CASES.items():
        for largest in (np.inf, 2.0):
            print(name, largest, *(np.array2string(np.asarray(x), precision=12) for x in squeeze(s2, d, largest)))
